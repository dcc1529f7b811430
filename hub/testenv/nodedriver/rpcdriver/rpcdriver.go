// Package rpcdriver serves a driver for tests by the plugin protocol, as published drivers do.
package rpcdriver

import (
	"encoding/gob"
	"fmt"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"time"

	"github.com/drover-dev/drover/hub/testenv/nodedriver/mcnflag"
)

// RPCFlags are the values of flags.
type RPCFlags struct{ Values map[string]any }

func init() {
	gob.Register(new(RPCFlags))
	gob.Register(new(mcnflag.IntFlag))
	gob.Register(new(mcnflag.StringFlag))
	gob.Register(new(mcnflag.StringSliceFlag))
	gob.Register(new(mcnflag.BoolFlag))
}

// Driver is what a driver does.
type Driver interface {
	CreateFlags() []any
	SetFlags(values map[string]any) error
	Config() ([]byte, error)
	SetConfig([]byte) error
	PreCreateCheck() error
	Create() error
	Remove() error
	State() (int, error)
	IP() (string, error)
	SSH() (host, user, key string, port int)
}

// Server is the service of net/rpc.
type Server struct {
	driver Driver
	beats  chan bool
}

// Serve prints the address and serves until there is no heartbeat for ten seconds.
func Serve(d Driver, version int) error {
	if os.Getenv("MACHINE_PLUGIN_TOKEN") != "42" {
		return fmt.Errorf("this is a plugin")
	}
	s := &Server{driver: d, beats: make(chan bool)}
	if err := rpc.RegisterName("RPCServerDriver", &service{s, version}); err != nil {
		return err
	}
	rpc.HandleHTTP()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, nil) }() //nolint:gosec
	for {
		select {
		case <-s.beats:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("no heartbeat")
		}
	}
}

type service struct {
	s       *Server
	version int
}

// The methods of the protocol.

// GetVersion is the version of the protocol.
func (r *service) GetVersion(_ *struct{}, reply *int) error { *reply = r.version; return nil }

// Heartbeat keeps the driver alive.
func (r *service) Heartbeat(_, _ *struct{}) error { r.s.beats <- true; return nil }

// GetCreateFlags are the flags.
func (r *service) GetCreateFlags(_ *struct{}, reply *[]any) error {
	*reply = r.s.driver.CreateFlags()
	return nil
}

// SetConfigFromFlags sets the values of flags.
func (r *service) SetConfigFromFlags(flags *any, _ *struct{}) error {
	return r.s.driver.SetFlags((*flags).(*RPCFlags).Values)
}

// GetConfigRaw is the configuration.
func (r *service) GetConfigRaw(_ *struct{}, reply *[]byte) (err error) {
	*reply, err = r.s.driver.Config()
	return err
}

// SetConfigRaw sets the configuration.
func (r *service) SetConfigRaw(data []byte, _ *struct{}) error { return r.s.driver.SetConfig(data) }

// PreCreateCheck checks.
func (r *service) PreCreateCheck(_, _ *struct{}) error { return r.s.driver.PreCreateCheck() }

// Create creates.
func (r *service) Create(_, _ *struct{}) error { return r.s.driver.Create() }

// Remove removes.
func (r *service) Remove(_, _ *struct{}) error { return r.s.driver.Remove() }

// GetState is the state.
func (r *service) GetState(_ *struct{}, reply *int) (err error) {
	*reply, err = r.s.driver.State()
	return err
}

// GetIP is the address.
func (r *service) GetIP(_ *struct{}, reply *string) (err error) {
	*reply, err = r.s.driver.IP()
	return err
}

// GetSSHHostname is the address for SSH.
func (r *service) GetSSHHostname(_ *struct{}, reply *string) error {
	*reply, _, _, _ = r.s.driver.SSH()
	return nil
}

// GetSSHUsername is the user.
func (r *service) GetSSHUsername(_ *struct{}, reply *string) error {
	_, *reply, _, _ = r.s.driver.SSH()
	return nil
}

// GetSSHKeyPath is the key.
func (r *service) GetSSHKeyPath(_ *struct{}, reply *string) error {
	_, _, *reply, _ = r.s.driver.SSH()
	return nil
}

// GetSSHPort is the port.
func (r *service) GetSSHPort(_ *struct{}, reply *int) error {
	_, _, _, *reply = r.s.driver.SSH()
	return nil
}
