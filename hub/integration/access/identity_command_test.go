package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestNodeCommand: the token in the command is valid for machines with the roles of the command, and not for agents, until its
// ClusterRegistrationToken is deleted.
func TestNodeCommand(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	command := func(args ...string) string {
		var out, errs bytes.Buffer
		args = append([]string{"node-command", client.ObjectKeyFromObject(cluster).String(), "--kubeconfig", env.Server.Kubeconfig(), "--worker"},
			args...)
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
	awaitToken(t, token)
	code, text := get(t, "/v3/connect/agent", machineHeaders(token, "server-by-command", machineSecret))
	if code != http.StatusForbidden ||
		!strings.Contains(text, "does not allow the role Etcd, ControlPlane: spec.roles of ClusterRegistrationToken "+management+"/"+crt.Name+
			" is Worker") {
		t.Errorf("a server by the command for a worker: %d %s", code, text)
	}
	registerAs(t, workerHeaders(token, "machine-by-command"))
	if uses := usesOf(t, crt); uses != 1 {
		t.Errorf("%d machines were counted, of which one was refused", uses)
	}
	if got := requestCredential(t, token, idOne); got.code != http.StatusForbidden {
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

// usesOf returns how many machines or agents have used a registration token.
func usesOf(t *testing.T, crt *managementv3.ClusterRegistrationToken) int {
	t.Helper()
	secret := &corev1.Secret{}
	env.Get(t, crt.Namespace, managementv3.TokenSecretPrefix+crt.Name, secret)
	return len(tokens.DecodeSecret(secret.Data).UsedBy)
}

// TestTokenPurpose: the purpose of a token is required, and can be narrowed but not widened.
func TestTokenPurpose(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	create := func(spec string) (*managementv3.ClusterRegistrationToken, error) {
		crt := &managementv3.ClusterRegistrationToken{}
		if err := json.Unmarshal([]byte(spec), &crt.Spec); err != nil {
			t.Fatal(err)
		}
		crt.Namespace, crt.GenerateName, crt.Spec.ClusterName = management, "bound-", management
		return crt, env.Client.Create(t.Context(), crt)
	}
	made := `"made":{"id":"abcdefghij","hash":"` + strings.Repeat("a", 64) + `"}`
	for _, tt := range []struct{ spec, patch, err string }{
		{spec: `{` + made + `}`, err: "spec.purpose is required with spec.made"},
		{spec: `{"roles":["Worker"]}`, err: "spec.roles needs spec.purpose Machines"},
		{spec: `{"purpose":"Agents","roles":["Worker"]}`, err: "spec.roles needs spec.purpose Machines"},
		{spec: `{"purpose":"Machines","roles":["worker"]}`, err: "spec.roles[0]"},
		// As other hubs make them; their maker may bind them later.
		{spec: `{}`, patch: `{"spec":{"purpose":"Machines","roles":["Worker"]}}`},
		{spec: `{"purpose":"Machines"}`, patch: `{"spec":{"purpose":"Agents"}}`, err: "spec.purpose cannot be changed"},
		{spec: `{"purpose":"Machines",` + made + `}`, patch: `{"spec":{"purpose":null}}`, err: "spec.purpose cannot be changed"},
		{spec: `{"purpose":"Machines","roles":["Etcd","Worker"]}`, patch: `{"spec":{"roles":["Worker"]}}`},
		{spec: `{"purpose":"Machines","roles":["Worker"]}`, patch: `{"spec":{"roles":["Worker","Etcd"]}}`,
			err: "spec.roles can only be narrowed"},
		{spec: `{"purpose":"Machines","roles":["Worker"]}`, patch: `{"spec":{"roles":null}}`, err: "spec.roles can only be narrowed"},
		// Without it, all of it could be set to something else by the next update.
		{spec: `{"purpose":"Machines","roles":["Worker"]}`, patch: `{"spec":null}`, err: "spec cannot be removed"},
	} {
		crt, err := create(tt.spec)
		if err == nil && tt.patch != "" {
			err = env.Client.Patch(t.Context(), crt, client.RawPatch(types.MergePatchType, []byte(tt.patch)))
		}
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s, then %s: got %v, want %q", tt.spec, tt.patch, err, tt.err)
		}
	}
}
