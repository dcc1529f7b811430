package identity

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestNodeCommand: the command holds a token that lets a machine in and no agent, until its ClusterRegistrationToken is deleted.
func TestNodeCommand(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	command := func(args ...string) string {
		var out, errs bytes.Buffer
		args = append([]string{"node-command", client.ObjectKeyFromObject(cluster).String(), "--kubeconfig", env.Server.Kubeconfig(), "--worker"}, args...)
		if code := cli.Main(args, &out, io.MultiWriter(&errs, t.Output())); code != 0 {
			t.Fatalf("it ended with %d: %s", code, errs.String())
		}
		return out.String()
	}
	found := regexp.MustCompile(`CATTLE_TOKEN=([a-z0-9]{10}\.[a-z2-7]{52})"`).FindStringSubmatch(command("--ttl", "45m", "--max-uses", "2"))
	if found == nil {
		t.Fatal("there is no token in the command")
	}
	token := found[1]
	var crts managementv3.ClusterRegistrationTokenList
	if err := env.Client.List(t.Context(), &crts, client.InNamespace(management)); err != nil {
		t.Fatal(err)
	}
	var crt *managementv3.ClusterRegistrationToken
	for i := range crts.Items {
		if strings.HasPrefix(crts.Items[i].Name, "node-command-") {
			crt = &crts.Items[i]
		}
	}
	if crt == nil || crt.Spec.Purpose != managementv3.MachinesPurpose || crt.Spec.MaxUses != 2 || crt.Status.ExpiresAt == nil ||
		crt.Status.ExpiresAt.Sub(crt.CreationTimestamp.Time).Minutes() != 45 || crt.Annotations[managementv3.DeleteExpiredAnnotation] != "true" {
		t.Fatalf("the ClusterRegistrationToken is %+v", crt)
	}
	register(t, token, "machine-by-command")
	if got := ask(t, token, idOne); got.code != http.StatusForbidden {
		t.Errorf("an agent with it: %d %s", got.code, got.text)
	}
	env.Delete(t, crt)
	testenv.Until(t, "the token to be worth nothing", func() error {
		if code, text := get(t, "/v3/connect/agent", machineHeaders(token, "another-machine", machineSecret)); code != http.StatusUnauthorized {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}
