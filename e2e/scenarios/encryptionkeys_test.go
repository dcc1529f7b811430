//go:build e2e

package scenarios

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// rotateEncryptionKeys switches the encryption of Secrets on for a cluster that was made without, and has the key rotated twice. A Secret
// is read from etcd, past the API server, to see which key it is encrypted with.
func rotateEncryptionKeys(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	d := distributionOf(t, key)
	kubeconfig, err := shared.WriteClusterKubeconfig(ctx, shared.Hub, key)
	suite.Must(t, err)
	suite.Must(t, shared.WaitFor(ctx, "a Secret is made", 2*time.Minute, func(ctx context.Context) (bool, string) {
		out, err := shared.TryKubectl(ctx, kubeconfig, "create", "secret", "generic", "kept", "--from-literal=word=heron")
		return err == nil || strings.Contains(out, "already exists"), fmt.Sprint(err)
	}))
	if stored := storedSecret(t, host, d, "default/kept"); strings.Contains(stored, "heron") == d.EncryptsSecrets {
		t.Fatalf("a Secret is stored as %.60q before Secrets are encrypted", stored)
	}
	if !d.EncryptsSecrets {
		changeCluster(t, key, func(c *provisioningv1.Cluster) {
			if c.Spec.RKEConfig.MachineGlobalConfig.Data == nil {
				c.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{}
			}
			c.Spec.RKEConfig.MachineGlobalConfig.Data["secrets-encryption"] = true
		})
	}
	suite.Must(t, shared.WaitFor(ctx, "the server encrypts Secrets", 5*time.Minute, func(ctx context.Context) (bool, string) {
		result, err := host.Exec(ctx, d.Runtime, "secrets-encrypt", "status")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(result.Stdout, "Encryption Status: Enabled"), result.Stdout + result.Stderr
	}))
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))

	last := ""
	for generation := int64(1); generation <= 2; generation++ {
		changeCluster(t, key, func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.RotateEncryptionKeys = &rkev1.RotateEncryptionKeys{Generation: generation}
		})
		controlPlane := &rkev1.RKEControlPlane{}
		// Between two servers of RKE2 that restart, there are 90 seconds.
		suite.Must(t, shared.WaitFor(ctx, fmt.Sprintf("the key is rotated, generation %d", generation), 12*time.Minute,
			func(ctx context.Context) (bool, string) {
				if err := shared.Hub.Get(ctx, key, controlPlane); err != nil {
					return false, err.Error()
				}
				s := controlPlane.Status
				asked := s.RotateEncryptionKeys != nil && s.RotateEncryptionKeys.Generation == generation
				if asked && s.RotateEncryptionKeysPhase == "Failed" {
					t.Fatalf("it failed: %s", shared.RunKubectl(t, shared.HubKubeconfig(), "-n", key.Namespace, "get", "encryptionkeyrotations",
						"-o", "yaml"))
				}
				return asked && s.RotateEncryptionKeysPhase == "Done", s.RotateEncryptionKeysPhase
			}))
		stored := storedSecret(t, host, d, "default/kept")
		if !strings.HasPrefix(stored, "k8s:enc:aescbc:v1:aescbckey") || strings.Contains(stored, "heron") {
			t.Fatalf("the Secret is stored as %.60q", stored)
		}
		// The name ends in a time, after which the ciphertext follows.
		name, _, _ := strings.Cut(strings.TrimPrefix(stored, "k8s:enc:aescbc:v1:"), "Z:")
		t.Logf("the Secret is encrypted with %s", name)
		if name == last {
			t.Errorf("the key is %s still", name)
		}
		last = name
		suite.Must(t, shared.WaitFor(ctx, "the Secret is read", 2*time.Minute, func(ctx context.Context) (bool, string) {
			word, err := shared.TryKubectl(ctx, kubeconfig, "get", "secret", "kept", "-o", "jsonpath={.data.word}")
			if err == nil && word != "aGVyb24=" {
				t.Fatalf("the Secret holds %q", word)
			}
			return err == nil, fmt.Sprint(err)
		}))
	}
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
}

// storedSecret is what etcd holds for a Secret of the cluster.
func storedSecret(t *testing.T, host *hosts.Host, d lab.Distribution, name string) string {
	t.Helper()
	tls := d.DataDir() + "/server/tls/etcd/"
	result, err := host.Exec(t.Context(), "curl", "-sS", "--cacert", tls+"server-ca.crt", "--cert", tls+"client.crt",
		"--key", tls+"client.key", "--data", `{"key":"`+base64.StdEncoding.EncodeToString([]byte("/registry/secrets/"+name))+`"}`, "https://127.0.0.1:2379/v3/kv/range")
	suite.Must(t, err)
	var answer struct {
		Kvs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &answer); err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("etcd answers %q, %q: %v", result.Stdout, result.Stderr, err)
	}
	return string(answer.Kvs[0].Value)
}
