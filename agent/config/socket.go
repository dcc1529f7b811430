package config

import (
	"fmt"
	"path/filepath"
)

const (
	// defaultSocket is the default of Config.Socket.
	defaultSocket = "/run/rancher-system-agent/agent.sock"
	// socketOff is the value of Config.Socket that disables it.
	socketOff = "none"
	// maxSocketPath is the size of sun_path (unix(7)) without the final zero.
	maxSocketPath = 107
)

// SocketPath is the path of the socket; empty if it is disabled.
func (c Config) SocketPath() string {
	if c.Socket == socketOff {
		return ""
	}
	return c.Socket
}

func (c Config) validateSocket() error {
	switch path := c.SocketPath(); {
	case path == "":
		return nil
	case !filepath.IsAbs(path):
		return fmt.Errorf("socket: must be an absolute path or %q, got %q", socketOff, path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("socket: must have at most %d bytes, got %d", maxSocketPath, len(path))
	}
	return nil
}
