//go:build e2e && full

package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestKeysAndTokens rotates encryption keys and tokens of a cluster of several servers, one of them with etcd alone, and a worker: every
// server has the new key and the new token after it, and another worker joins.
func TestKeysAndTokens(t *testing.T) { keysAndTokens(t, lab.K3s, "keys") }

// TestKeysAndTokensRKE2 does so with a cluster of RKE2.
func TestKeysAndTokensRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	keysAndTokens(t, lab.RKE2, "keysr")
}

func keysAndTokens(t *testing.T, d lab.Distribution, cluster string) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: cluster}
	shared.MakeNamespace(t, key.Namespace)
	all := map[string]*hosts.Host{}
	scenario := t
	join := func(t *testing.T, name string, roles ...string) {
		all[name] = shared.NewHost(scenario, cluster+name)
		command, _, err := shared.TokenCommand(ctx, shared.Hub, key, roles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, all[name], command))
	}
	suite.Step(t, "three servers and a worker make a cluster", func(t *testing.T) {
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, key, d.Version))
		join(t, "1", "--etcd", "--controlplane", "--worker")
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 10*time.Minute))
		join(t, "2", "--etcd", "--controlplane")
		join(t, "3", "--etcd")
		join(t, "w", "--worker")
		awaitNodes(t, key, 4)
	})
	suite.Step(t, "the key is rotated on all servers", func(t *testing.T) {
		rotateEncryptionKeys(t, all["1"], key)
		for _, name := range []string{"1", "2"} {
			suite.Must(t, shared.WaitFor(ctx, "server "+name+" has the key", 2*time.Minute, func(ctx context.Context) (bool, string) {
				result, err := all[name].Exec(ctx, d.Runtime, "secrets-encrypt", "status")
				return err == nil && strings.Contains(result.Stdout, "reencrypt_finished") && strings.Contains(result.Stdout, "All hashes match"),
					fmt.Sprintf("%v %s", err, result.Stdout)
			}))
		}
	})
	suite.Step(t, "the tokens are rotated on all servers", func(t *testing.T) {
		rotateTokens(t, all["1"], key)
		for _, name := range []string{"2", "3"} {
			hasToken(t, all[name], key)
		}
	})
	suite.Step(t, "the worker starts with its new token, and another one joins", func(t *testing.T) {
		_, err := all["w"].Exec(ctx, "systemctl", "restart", d.AgentUnit)
		suite.Must(t, err)
		join(t, "x", "--worker")
		awaitNodes(t, key, 5)
	})
	suite.Step(t, "the Cluster is deleted", func(t *testing.T) { shared.DeleteCluster(t, key) })
}

// awaitNodes waits until a cluster has a number of Nodes, all of them ready, and is Ready.
func awaitNodes(t *testing.T, key client.ObjectKey, want int) {
	t.Helper()
	kubeconfig, err := shared.WriteClusterKubeconfig(t.Context(), shared.Hub, key)
	suite.Must(t, err)
	suite.Must(t, shared.WaitFor(t.Context(), "the Nodes are Ready", 10*time.Minute, func(ctx context.Context) (bool, string) {
		out, err := shared.TryKubectl(ctx, kubeconfig, "get", "nodes", "--no-headers")
		return err == nil && strings.Count(out, " Ready ") == want, out
	}))
	suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 10*time.Minute))
}
