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

// TestAuthorizedEndpoint uses a cluster without the hub: somebody in the network of its machine, with the context that leads there directly.
func TestAuthorizedEndpoint(t *testing.T) {
	host, _ := inside(t)
	u := newUser(t, "beside", "kubectl-1.36")
	u.getKubeconfig(t, insideKey)
	u.run(t, "get", "nodes") // and the token is kept, for a quarter of an hour
	direct := ""
	for name := range strings.FieldsSeq(u.run(t, "config", "get-contexts", "-o", "name")) {
		if strings.Contains(name, "@") {
			direct = name
		}
	}
	if direct == "" {
		t.Fatal("the kubeconfig has no context that leads to the cluster directly")
	}
	u.at = host
	suite.Step(t, "the cluster's own API server takes the user's token", func(t *testing.T) {
		suite.Must(t, shared.WaitFor(t.Context(), "it does", time.Minute, works(u, "--context", direct, "get", "nodes")))
	})
	suite.Step(t, "and does so without the hub", func(t *testing.T) {
		suite.Must(t, shared.KillHub(t.Context()))
		defer func() { suite.Must(t, shared.StartHub(t.Context())) }()
		if out := u.run(t, "--context", direct, "get", "nodes", "-o", "name"); !strings.Contains(out, "node/") {
			t.Errorf("kubectl says %q", out)
		}
		if out := u.run(t, "--context", direct, "exec", "toolbox", "--", "cat", "/proc/self/comm"); !strings.Contains(out, "cat") {
			t.Errorf("exec says %q", out)
		}
	})
}

// works is whether a kubectl ends well.
func works(u user, args ...string) lab.Check {
	return func(ctx context.Context) (bool, string) {
		_, err := u.try(ctx, 10*time.Second, args...)
		return err == nil, fmt.Sprint(err)
	}
}
