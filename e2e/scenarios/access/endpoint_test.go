//go:build e2e

package access

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// besideUser is somebody in the network of a cluster's machine, whose kubectl goes to the cluster's own API server: the authorized cluster
// endpoint. His token is kept, for a quarter of an hour.
func (c *closedCluster) besideUser(t *testing.T) user {
	t.Helper()
	u := newUser(t, c.key.Name+"-beside", "kubectl-1.36")
	u.getKubeconfig(t, c.key)
	u.run(t, "get", "nodes")
	direct := ""
	for name := range strings.FieldsSeq(u.run(t, "config", "get-contexts", "-o", "name")) {
		if strings.Contains(name, "@") {
			direct = name
		}
	}
	if direct == "" {
		t.Fatal("the kubeconfig has no context that leads to the cluster directly")
	}
	u.run(t, "config", "use-context", direct)
	u.at = c.host
	suite.Must(t, shared.WaitFor(t.Context(), "the cluster's own API server takes the token", 2*time.Minute, works(u, "get", "nodes")))
	return u
}

// works is whether a kubectl ends well.
func works(u user, args ...string) lab.Check {
	return func(ctx context.Context) (bool, string) {
		_, err := u.try(ctx, time.Minute, args...)
		return err == nil, fmt.Sprint(err)
	}
}
