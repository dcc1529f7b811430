package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/drover-dev/drover/e2e/hosts"
)

// connectionFile is where an agent keeps what the hub answered to its registration.
const connectionFile = "/var/lib/rancher/agent/rancher2_connection_info.json"

// AgentAccess asks for a path of the hub's API with the agent's own credential and returns the HTTP status of the answer.
// An empty path is that of the host's plan Secret.
func (l *Lab) AgentAccess(ctx context.Context, host *hosts.Host, path string) (int, error) {
	raw, err := os.ReadFile(host.Path(connectionFile))
	if err != nil {
		return 0, fmt.Errorf("reading the agent's connection file: %w", err)
	}
	var connection struct {
		KubeConfig string `json:"kubeConfig"`
		Namespace  string `json:"namespace"`
		SecretName string `json:"secretName"`
	}
	if err := json.Unmarshal(raw, &connection); err != nil {
		return 0, fmt.Errorf("reading the agent's connection file: %w", err)
	}
	config, err := l.restConfig([]byte(connection.KubeConfig))
	if err != nil {
		return 0, err
	}
	if path == "" {
		path = "/api/v1/namespaces/" + connection.Namespace + "/secrets/" + connection.SecretName
	}
	return rawStatus(ctx, config, path)
}
