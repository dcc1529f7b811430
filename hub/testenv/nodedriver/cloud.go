package nodedriver

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Instance is a machine at the cloud.
type Instance struct {
	ID                    string
	Name, Image, UserData string
	PublicKey             string `json:",omitempty"`
	Size                  int
	Tags                  []string
	Private, Started      bool
	Scripts               []string `json:",omitempty"`
	allowed               ssh.PublicKey
}

// Cloud is a cloud for tests: an HTTP API by which the driver lab makes instances, and an SSH server that all of them share.
type Cloud struct {
	// URL is that of the API.
	URL string
	// Hosts makes the machines of instances; it is set before the first one is made. Without it, all instances are one SSH server, which
	// keeps what it is asked to run.
	Hosts Hosts

	mutex     sync.Mutex
	token     string
	fault     func(method, path string) error
	instances map[string]*Instance
	made      int
	api       *httptest.Server
	listener  net.Listener
	config    *ssh.ServerConfig
}

// Hosts makes and removes the machines of instances.
type Hosts interface {
	// Make returns the address of the SSH server of a new machine. The machine may still be booting.
	Make(i Instance) (net.TCPAddr, error)
	// Remove removes the machine of an instance.
	Remove(i Instance) error
}

// NewCloud starts a cloud that takes a token. Close ends it.
func NewCloud(token string) (*Cloud, error) {
	return NewCloudOn(func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }, token)
}

// NewCloudOn is NewCloud with listeners of its own, which machines elsewhere reach.
func NewCloudOn(listen func() (net.Listener, error), token string) (*Cloud, error) {
	c := &Cloud{token: token, instances: map[string]*Instance{}}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, err
	}
	c.config = &ssh.ServerConfig{PublicKeyCallback: c.authenticate}
	c.config.AddHostKey(signer)
	if c.listener, err = listen(); err != nil {
		return nil, err
	}
	api, err := listen()
	if err != nil {
		return nil, errors.Join(err, c.listener.Close())
	}
	go c.serveSSH()
	c.api = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	_ = c.api.Listener.Close()
	c.api.Listener = api
	c.api.Start()
	c.URL = c.api.URL
	return c, nil
}

// Close ends the cloud.
func (c *Cloud) Close() error {
	c.api.Close()
	return c.listener.Close()
}

// SetToken changes the token that the API takes.
func (c *Cloud) SetToken(token string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.token = token
}

// SetFault makes requests fail with the error that fault returns; nil ends it.
func (c *Cloud) SetFault(fault func(method, path string) error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.fault = fault
}

// Instances are those that exist, by name.
func (c *Cloud) Instances() map[string]Instance {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	out := map[string]Instance{}
	for _, i := range c.instances {
		out[i.Name] = *i
	}
	return out
}

// Made is how many instances were made so far.
func (c *Cloud) Made() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.made
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	answer, err := c.answer(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the driver sees what is missing
}

func (c *Cloud) answer(r *http.Request) (any, error) {
	c.mutex.Lock()
	fault := c.fault
	c.mutex.Unlock()
	if fault != nil {
		if err := fault(r.Method, r.URL.Path); err != nil {
			return nil, err
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+c.token {
		return nil, errors.New("unauthorized")
	}
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/instances/"), "/")
	switch {
	case r.URL.Path == "/":
		return "ok", nil
	case r.Method == http.MethodPost && r.URL.Path == "/instances":
		return c.make(r.Body)
	case c.instances[id] == nil:
		return nil, errors.New("instance not found")
	case r.Method == http.MethodPost && rest == "start":
		c.instances[id].Started = true
	case r.Method == http.MethodDelete:
		if c.Hosts != nil {
			if err := c.Hosts.Remove(*c.instances[id]); err != nil {
				return nil, err
			}
		}
		delete(c.instances, id)
	}
	return "ok", nil
}

func (c *Cloud) make(body io.Reader) (any, error) {
	i := &Instance{}
	if err := json.NewDecoder(body).Decode(i); err != nil {
		return nil, err
	}
	var err error
	if i.allowed, _, _, _, err = ssh.ParseAuthorizedKey([]byte(i.PublicKey)); err != nil {
		return nil, err
	}
	address := *c.listener.Addr().(*net.TCPAddr)
	if c.Hosts != nil {
		if address, err = c.Hosts.Make(*i); err != nil {
			return nil, err
		}
	}
	c.made++
	i.ID = fmt.Sprintf("i-%d", c.made)
	c.instances[i.ID] = i
	return map[string]any{"ID": i.ID, "IP": address.IP.String(), "Port": address.Port}, nil
}

func (c *Cloud) authenticate(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, i := range c.instances {
		if string(i.allowed.Marshal()) == string(key.Marshal()) {
			return &ssh.Permissions{Extensions: map[string]string{"instance": i.ID}}, nil
		}
	}
	return nil, errors.New("unknown key")
}

func (c *Cloud) serveSSH() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.session(conn)
	}
}

func (c *Cloud) session(raw net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(raw, c.config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for channel := range channels {
		accepted, requests, err := channel.Accept()
		if err != nil {
			return
		}
		go c.exec(conn.Permissions.Extensions["instance"], accepted, requests)
	}
}

// exec keeps what a command reads, and says that it has succeeded.
func (c *Cloud) exec(id string, channel ssh.Channel, requests <-chan *ssh.Request) {
	for request := range requests {
		if err := request.Reply(request.Type == "exec", nil); err != nil || request.Type != "exec" {
			continue
		}
		var command struct{ Command string }
		if err := ssh.Unmarshal(request.Payload, &command); err != nil {
			return
		}
		input, err := io.ReadAll(channel)
		if err != nil {
			return
		}
		c.mutex.Lock()
		if i := c.instances[id]; i != nil {
			i.Scripts = append(i.Scripts, command.Command+"\n"+string(input))
		}
		c.mutex.Unlock()
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{}))
		_ = channel.Close()
	}
}
