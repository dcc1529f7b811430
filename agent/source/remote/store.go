package remote

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
)

// errReplaced tells that the connection info is another by now, and is to be read before anything else.
var errReplaced = errors.New("the connection info has been replaced")

// store puts other connection info in the place of that which a client was made of. What somebody else has put there meanwhile stays.
func (s *Source) store(c *client, next config.Connection) error {
	encoded, err := next.Encode(c.file)
	if err != nil {
		return err
	}
	if _, err := newClient(next, encoded, s.strict); err != nil {
		return fmt.Errorf("the new connection info cannot be used: %w", err)
	}
	if _, now, err := config.ReadConnection(s.file); err == nil && !bytes.Equal(now, c.file) {
		return errReplaced
	}
	if err := s.host.WriteFile(s.file, encoded, host.Private(0o600)); err != nil {
		return fmt.Errorf("writing the connection info: %w", err)
	}
	return nil
}

// withAuthorities is a connection that trusts other authorities.
func withAuthorities(connection config.Connection, authorities []byte) (config.Connection, error) {
	kubeconfig, err := clientcmd.Load([]byte(connection.KubeConfig))
	if err != nil {
		return connection, fmt.Errorf("decoding kubeconfig: %w", err)
	}
	context := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if context == nil || kubeconfig.Clusters[context.Cluster] == nil {
		return connection, errors.New("the kubeconfig names no cluster")
	}
	kubeconfig.Clusters[context.Cluster].CertificateAuthorityData = authorities
	encoded, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return connection, fmt.Errorf("encoding kubeconfig: %w", err)
	}
	connection.KubeConfig = string(encoded)
	return connection, nil
}
