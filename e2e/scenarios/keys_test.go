//go:build e2e && full

package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestKeysAndTokens rotates encryption keys and tokens of a cluster of several servers, one of them with etcd alone, and a worker: every
// server has the new key and the new token after it, and another worker joins.
func TestKeysAndTokens(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: "keys"}
	shared.MakeNamespace(t, key.Namespace)
	all := map[string]*hosts.Host{}
	join := func(t *testing.T, name string, roles ...string) {
		all[name] = shared.NewHost(t, name)
		command, _, err := shared.TokenCommand(ctx, shared.Hub, key, roles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, all[name], command))
	}
	suite.Step(t, "three servers and a worker make a cluster", func(t *testing.T) {
		suite.Must(t, shared.ApplyCluster(ctx, shared.Hub, key))
		join(t, "keys1", "--etcd", "--controlplane", "--worker")
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 10*time.Minute))
		join(t, "keys2", "--etcd", "--controlplane")
		join(t, "keys3", "--etcd")
		join(t, "keysw", "--worker")
		awaitNodes(t, key, 4)
	})
	suite.Step(t, "the key is rotated on all servers", func(t *testing.T) {
		rotateEncryptionKeys(t, all["keys1"], key)
		for _, name := range []string{"keys1", "keys2"} {
			result, err := all[name].Exec(ctx, distributionOf(t, key).Runtime, "secrets-encrypt", "status")
			suite.Must(t, err)
			if !strings.Contains(result.Stdout, "reencrypt_finished") || !strings.Contains(result.Stdout, "All hashes match") {
				t.Errorf("%s: %s", name, result.Stdout)
			}
		}
	})
	suite.Step(t, "the tokens are rotated on all servers", func(t *testing.T) {
		rotateTokens(t, all["keys1"], key)
		for _, name := range []string{"keys2", "keys3"} {
			hasToken(t, all[name], key)
		}
	})
	suite.Step(t, "the worker starts with its new token, and another one joins", func(t *testing.T) {
		_, err := all["keysw"].Exec(ctx, "systemctl", "restart", distributionOf(t, key).AgentUnit)
		suite.Must(t, err)
		join(t, "keysx", "--worker")
		awaitNodes(t, key, 5)
	})
	suite.Step(t, "the Cluster is deleted", func(t *testing.T) { shared.DeleteCluster(t, key) })
}

// awaitNodes waits until a cluster has a number of Nodes, all of them ready, and is Ready.
func awaitNodes(t *testing.T, key client.ObjectKey, want int) {
	t.Helper()
	kubeconfig, err := shared.WriteClusterKubeconfig(t.Context(), shared.Hub, key)
	suite.Must(t, err)
	suite.Must(t, shared.WaitFor(t.Context(), "the Nodes are Ready", 10*time.Minute, func(context.Context) (bool, string) {
		out := shared.RunKubectl(t, kubeconfig, "get", "nodes", "--no-headers")
		return strings.Count(out, " Ready ") == want, out
	}))
	suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 10*time.Minute))
}
