package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// sshAgent gives ssh a key that is in no file.
type sshAgent struct {
	dir, socket string
	listener    net.Listener
}

// newSSHAgent starts an agent that has one key, and listens in a directory of the user's own.
func newSSHAgent(privateKey []byte) (*sshAgent, error) {
	key, err := ssh.ParseRawPrivateKey(privateKey)
	if err != nil {
		return nil, errors.New("the SSH key of the machine is not readable")
	}
	keyring := agent.NewKeyring()
	if err := keyring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		return nil, fmt.Errorf("using the SSH key of the machine: %w", err)
	}
	dir, err := os.MkdirTemp("", "drover-ssh-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the SSH agent: %w", err)
	}
	a := &sshAgent{dir: dir, socket: filepath.Join(dir, "agent")}
	if a.listener, err = net.Listen("unix", a.socket); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for ssh: %w", err), os.RemoveAll(dir))
	}
	go func() {
		for {
			conn, err := a.listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer conn.Close()
				_ = agent.ServeAgent(keyring, conn) // ends with the connection
			}()
		}
	}()
	return a, nil
}

func (a *sshAgent) close() {
	_ = a.listener.Close()
	_ = os.RemoveAll(a.dir)
}
