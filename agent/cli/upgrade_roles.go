package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// nodeTimeout bounds one request for the Node; the Job is repeated.
	nodeTimeout = 30 * time.Second
	// maxNodeBytes bounds what is read of a Node. etcd's default limit for an object is 1.5 MiB.
	maxNodeBytes = 4 << 20
	rolePrefix   = "node-role.kubernetes.io/"
)

// nodeLabels reads the labels of a Node.
func nodeLabels(ctx context.Context, cluster *rest.Config, node string) (map[string]string, error) {
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	address := strings.TrimSuffix(cluster.Host, "/") + "/api/v1/nodes/" + url.PathEscape(node)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxNodeBytes))
	if err != nil {
		return nil, err
	}
	// A Status of the API server has a message for people.
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(raw, &object); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answers HTTP %d: %s", response.StatusCode, object.Message)
	}
	return object.Metadata.Labels, nil
}

// roleVariables returns the variables of the install script for the roles in a Node's labels. RKE2 and k3s set them to "true".
func roleVariables(labels map[string]string) []string {
	var roles []string
	has := func(role string) bool { return labels[rolePrefix+role] == "true" }
	if has("etcd") {
		roles = append(roles, "CATTLE_ROLE_ETCD=true")
	}
	if has("controlplane") || has("control-plane") {
		roles = append(roles, "CATTLE_ROLE_CONTROLPLANE=true")
	}
	if has("worker") {
		roles = append(roles, "CATTLE_ROLE_WORKER=true")
	}
	return roles
}
