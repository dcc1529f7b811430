//go:build e2e

package pools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// apply applies a file of testdata as a user does with kubectl. pairs are more words to replace in it, each with what it becomes.
func apply(t *testing.T, file string, key client.ObjectKey, pairs ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	suite.Must(t, err)
	pairs = append(pairs, "NAMESPACE", key.Namespace, "NAME", key.Name, "VERSION", lab.Version, "REGISTRY", shared.RegistryURL())
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(strings.NewReplacer(pairs...).Replace(string(raw))))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		suite.Must(t, err)
		o := &unstructured.Unstructured{}
		suite.Must(t, yaml.Unmarshal(document, &o.Object))
		err = shared.Hub.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("scenario"), client.ForceOwnership)
		if err != nil {
			t.Fatalf("applying %s %s of %s: %v", o.GetKind(), o.GetName(), file, err)
		}
	}
}

// machinesOf lists the Machines of a cluster.
func machinesOf(ctx context.Context, key client.ObjectKey, more ...client.ListOption) ([]clusterv1.Machine, error) {
	machines := &clusterv1.MachineList{}
	options := append([]client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}},
		more...)
	if err := shared.Hub.List(ctx, machines, options...); err != nil {
		return nil, err
	}
	return machines.Items, nil
}

// inPool selects the Machines of a pool.
func inPool(name string) client.ListOption {
	return client.MatchingLabels{"rke.cattle.io/rke-machine-pool-name": name}
}

// names are those of Machines.
func names(machines []clusterv1.Machine) map[string]bool {
	out := map[string]bool{}
	for _, m := range machines {
		out[m.Name] = true
	}
	return out
}

// change patches an object of the hub as a user does with kubectl.
func change(t *testing.T, o client.Object, format string, values ...any) {
	t.Helper()
	suite.Must(t, shared.Hub.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, values...))))
}
