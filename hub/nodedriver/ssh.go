package nodedriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
)

const (
	openFlags = syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOFOLLOW
	// maxKey is the size of a key.
	maxKey = 64 << 10
	// dialTimeout is the time to connect and to log in, sshInterval the pause between attempts while the machine boots.
	dialTimeout = 15 * time.Second
	sshInterval = 3 * time.Second
	scriptFile  = "/tmp/drover-bootstrap.sh"
)

// bootstrap runs the bootstrap script on a machine over SSH. It tries to connect until ctx ends: the machine may still be booting.
func (m *Machine) bootstrap(ctx context.Context, box *sandbox.Sandbox, at plugin.SSH, log *plugin.Log) error {
	key, err := readFile(box, inSandbox(at.KeyPath), maxKey)
	if err != nil {
		return fmt.Errorf("reading the SSH key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return errors.New("the SSH key of the driver is not readable")
	}
	client, err := connect(ctx, at, signer)
	if err != nil {
		return fmt.Errorf("connecting to the machine over SSH as %s at %s, port %d: %w", at.User, at.Host, at.Port, err)
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })() // what runs ends with an error
	sudo := "sudo "
	if at.User == "root" {
		sudo = ""
	}
	// The name of the machine is the hub's own, and no user's text.
	script := fmt.Sprintf("hostname %[1]s && echo %[1]s >/etc/hostname\n%s", m.Hostname, m.Script)
	if err := run(client, "umask 077 && cat >"+scriptFile, []byte(script), log); err != nil {
		return fmt.Errorf("copying the bootstrap script to the machine: %w", err)
	}
	if err := run(client, sudo+"sh "+scriptFile+" </dev/null; code=$?; rm -f "+scriptFile+"; exit $code", nil, log); err != nil {
		return fmt.Errorf("running the bootstrap script on the machine: %w", err)
	}
	return nil
}

func run(client *ssh.Client, command string, input []byte, log *plugin.Log) error {
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	session.Stdin, session.Stdout, session.Stderr = bytes.NewReader(input), log, log
	return session.Run(command)
}

// connect retries until ctx ends.
func connect(ctx context.Context, at plugin.SSH, signer ssh.Signer) (*ssh.Client, error) {
	for {
		client, err := dial(ctx, at, signer)
		if err == nil {
			return client, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(sshInterval):
		}
	}
}

func dial(ctx context.Context, at plugin.SSH, signer ssh.Signer) (*ssh.Client, error) {
	address := net.JoinHostPort(at.Host, strconv.Itoa(at.Port))
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	config := &ssh.ClientConfig{
		User: at.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, Timeout: dialTimeout,
		// Nobody knows the host key of a machine that was just made: drivers do not tell it.
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return ssh.NewClient(c, channels, requests), conn.SetDeadline(time.Time{})
}
