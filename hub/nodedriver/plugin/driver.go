// Package plugin speaks to a node driver: a program that serves the plugin protocol of Docker Machine. The program runs in a sandbox,
// prints the loopback address that it serves at, and answers calls of net/rpc. Nothing that it says is trusted: answers are limited in
// size and time, and its output is kept to the last lines, without secrets.
package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/rpc"
	"os/exec"
	"sync"
	"time"

	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
)

const (
	// startTimeout is the time in which a driver must serve, callTimeout that of an answer that needs no cloud.
	startTimeout = 10 * time.Second
	callTimeout  = 10 * time.Second
	// endTimeout is the time in which a program that has closed its connection tells why.
	endTimeout = 3 * time.Second
	// heartbeat is the interval of the calls without which a driver ends.
	heartbeat = 4 * time.Second
	// apiVersion is that of the protocol.
	apiVersion = 1
	service    = "RPCServerDriver."
)

// Error is what a driver has answered, or how it has failed. Its text holds no secrets.
type Error struct {
	// Method of the protocol that was called; empty before the first call.
	Method  string
	Message string
	// Answered is true where Message is what the driver has answered.
	Answered bool
}

func (e *Error) Error() string {
	if e.Method == "" {
		return "node driver: " + e.Message
	}
	return fmt.Sprintf("node driver: %s: %s", e.Method, e.Message)
}

// Options say how a driver is started.
type Options struct {
	// Name is the driver's, such as digitalocean. A program with several drivers, such as rancher-machine, serves the one of that name.
	Name string
	// Env is the environment, as name=value, beyond what the protocol needs.
	Env []string
	// Log takes the output.
	Log *Log
}

// Driver is a running driver.
type Driver struct {
	cmd    *exec.Cmd
	client *rpc.Client
	log    *Log
	// ended is closed when the program has ended.
	ended     chan struct{}
	heartbeat context.CancelFunc
	once      sync.Once
}

// Start starts a driver and returns it when it answers. The caller closes it.
func Start(ctx context.Context, box *sandbox.Sandbox, opts Options) (*Driver, error) {
	d := &Driver{log: opts.Log, ended: make(chan struct{})}
	if d.log == nil {
		d.log = NewLog()
	}
	d.cmd = box.Command(append([]string{
		"MACHINE_PLUGIN_TOKEN=42", "MACHINE_PLUGIN_DRIVER_NAME=" + opts.Name, "MACHINE_STORAGE_PATH=" + sandbox.Home,
	}, opts.Env...))
	address := &firstLine{line: make(chan string, 1), rest: d.log}
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.WaitDelay = address, d.log, time.Second
	if err := sandbox.Start(d.cmd); err != nil {
		return nil, fmt.Errorf("starting the node driver: %w", err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait() // a driver that ended is told of by the call that failed
	}()
	if err := d.connect(ctx, address.line); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Driver) connect(ctx context.Context, line <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var address netip.AddrPort
	select {
	case text := <-line:
		var err error
		if address, err = netip.ParseAddrPort(text); err != nil || !address.Addr().IsLoopback() {
			return &Error{Message: "its first line is not the loopback address that it serves at: is this a node driver?"}
		}
	case <-d.ended:
		return d.failed("", "the program ended before it served: is this a node driver, for this machine's architecture?")
	case <-ctx.Done():
		return &Error{Message: fmt.Sprintf("the program did not serve within %s", startTimeout)}
	}
	conn, err := dial(ctx, address.String())
	if err != nil {
		return &Error{Message: "connecting: " + d.log.Redact(err.Error())}
	}
	d.client = rpc.NewClientWithCodec(newCodec(conn))
	var version int
	if err := d.call(ctx, callTimeout, "GetVersion", struct{}{}, &version); err != nil {
		return err
	}
	if version != apiVersion {
		return &Error{Message: fmt.Sprintf("it speaks version %d of the plugin protocol; the hub speaks version %d", version, apiVersion)}
	}
	beating, cancelBeat := context.WithCancel(context.Background())
	d.heartbeat = cancelBeat
	go d.beat(beating)
	return nil
}

// dial opens the connection as net/rpc does over HTTP.
func dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	err = errors.Join(conn.SetDeadline(deadline), connectRPC(conn), conn.SetDeadline(time.Time{}))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func connectRPC(conn net.Conn) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.0\n\n", rpc.DefaultRPCPath); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(&limited{conn, 4096}), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("unexpected HTTP status %d", answer.StatusCode)
	}
	return nil
}

func (d *Driver) beat(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			// A driver that does not answer fails the call that it is in.
			_ = d.call(ctx, heartbeat, "Heartbeat", struct{}{}, nil)
		case <-ctx.Done():
			return
		}
	}
}

// call calls a method. The error is an *Error, or that of ctx.
func (d *Driver) call(ctx context.Context, timeout time.Duration, method string, args, reply any) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	call := d.client.Go(service+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error == nil {
			return nil
		}
		if errors.Is(call.Error, rpc.ErrShutdown) || !isAnswer(call.Error) {
			return d.broke(method, call.Error)
		}
		return &Error{Method: method, Message: d.log.Redact(call.Error.Error()), Answered: true}
	case <-d.ended:
		return d.failed(method, "the program ended")
	case <-timer.C:
		return &Error{Method: method, Message: fmt.Sprintf("no answer within %s", timeout)}
	case <-ctx.Done():
		return fmt.Errorf("node driver: %s: %w", method, ctx.Err())
	}
}

func isAnswer(err error) bool {
	var answer rpc.ServerError
	return errors.As(err, &answer)
}

// broke is the error of a driver whose connection broke, mostly since the program is ending, which it has some time for.
func (d *Driver) broke(method string, err error) error {
	select {
	case <-d.ended:
		return d.failed(method, "the program ended")
	case <-time.After(endTimeout):
		return d.failed(method, "the connection broke: "+err.Error())
	}
}

// failed is the error of a driver that broke off, with the last line of its output.
func (d *Driver) failed(method, what string) error {
	if last := d.log.LastLine(); last != "" {
		what += "; its last output: " + last
	}
	return &Error{Method: method, Message: d.log.Redact(what)}
}

// Close ends the driver and everything that it has started, and returns when it has ended.
func (d *Driver) Close() {
	d.once.Do(func() {
		if d.heartbeat != nil {
			d.heartbeat()
		}
		if d.client != nil {
			_ = d.client.Close() // the program is killed anyway
		}
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.ended
	})
}
