package registration

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

func TestParseRegistration(t *testing.T) {
	headers := http.Header{}
	for name, value := range map[string]string{
		"X-Cattle-Id": "abc123", "X-Cattle-Machine-Secret": "0123456789abcdef", "X-Cattle-Role-Etcd": "true", "X-Cattle-Role-Worker": "false",
		"X-Cattle-Node-Name": " node-1.example ", "X-Cattle-Address": "192.0.2.1,2001:db8::1", "X-Cattle-Detected-Address": "10.0.0.1",
		"X-Cattle-Labels": "cattle.io/os=linux,a=b,empty=", "X-Cattle-Taints": "k=v:NoSchedule,only:NoExecute", "X-Cattle-Unknown": "kept out",
		"X-Cattle-Internal-Address": "", "X-Cattle-Server-Token-Hash": "ab",
	} {
		headers.Set(name, value)
	}
	headers.Add("X-Cattle-Labels", "node.kubernetes.io/pool=x")
	got, err := parseRegistration(headers)
	if err != nil {
		t.Fatal(err)
	}
	hash := tokens.Hash("0123456789abcdef")
	if got.ID != "abc123" || got.SecretHash != hash || got.ServerTokenHash != "ab" ||
		!slices.Equal(got.roles(), []managementv3.MachineRole{managementv3.EtcdRole}) {
		t.Errorf("got %+v", got)
	}
	encoded, err := got.encode()
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"id": {"abc123"}, "role-etcd": {"true"}, "role-worker": {"false"}, "node-name": {"node-1.example"}, "address": {"192.0.2.1,2001:db8::1"},
		"detected-address": {"10.0.0.1"}, "labels": {"cattle.io/os=linux,a=b,empty=,node.kubernetes.io/pool=x"},
		"taints": {"k=v:NoSchedule,only:NoExecute"}, "machine-secret-hash": {hash},
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("machine request (-want +got):\n%s", diff)
	}
}

func TestParseRegistrationRefuses(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tt := range []struct{ name, header, value, want string }{
		{"no id", "X-Cattle-Id", "", "X-Cattle-Id: it is missing"},
		{"id with a slash", "X-Cattle-Id", "../x", "X-Cattle-Id: it may hold only"},
		{"long id", "X-Cattle-Id", strings.Repeat("a", 254), "X-Cattle-Id: it is longer than 253"},
		{"role", "X-Cattle-Role-Etcd", "yes", `X-Cattle-Role-Etcd: "yes" must be true or false`},
		{"role of another name", "X-Cattle-Role-Control-Plane", "1", "X-Cattle-Role-Control-Plane: "},
		{"node name", "X-Cattle-Node-Name", "Node_1", `X-Cattle-Node-Name: "Node_1" is not a valid node name`},
		{"long node name", "X-Cattle-Node-Name", long, "is longer than 63"},
		{"address", "X-Cattle-Address", "host.example", `X-Cattle-Address: "host.example" is not an IP address`},
		{"unspecified address", "X-Cattle-Internal-Address", "0.0.0.0", "X-Cattle-Internal-Address: "},
		{"address with zone", "X-Cattle-Detected-Address", "fe80::1%eth0", "X-Cattle-Detected-Address: "},
		{"many addresses", "X-Cattle-Address", "1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5", "more than 4 addresses"},
		{"empty address", "X-Cattle-Address", "1.1.1.1,", "is not an IP address"},
		{"label without value", "X-Cattle-Labels", "a", `X-Cattle-Labels: "a" must look like key=value`},
		{"label key", "X-Cattle-Labels", "a b=c", `X-Cattle-Labels: "a b" is not a valid label key`},
		{"label value", "X-Cattle-Labels", "a=-", "the value of the label a"},
		{"hub's label", "X-Cattle-Labels", "x=y,rke.cattle.io/init-node=true",
			"the label rke.cattle.io/init-node is not allowed: rke.cattle.io is reserved"},
		{"Cluster API's label", "X-Cattle-Labels", "cluster.x-k8s.io/cluster-name=x", "is not allowed"},
		{"node role label", "X-Cattle-Labels", "node-role.kubernetes.io/master=true", "a node may not label itself under kubernetes.io"},
		{"node restriction", "X-Cattle-Labels", "node-restriction.kubernetes.io/x=y", "a node may not label itself"},
		{"many labels", "X-Cattle-Labels", strings.Repeat("a=b,", 64) + "a=b", "more than 64 labels"},
		{"taint without effect", "X-Cattle-Taints", "a=b", "must look like key=value:effect"},
		{"taint effect", "X-Cattle-Taints", "a=b:Never", "must look like key=value:effect"},
		{"taint key", "X-Cattle-Taints", "=b:NoExecute", "is not a valid taint key"},
		{"short secret", "X-Cattle-Machine-Secret", "short", "X-Cattle-Machine-Secret: it must have 16 to 512 characters"},
		{"not ASCII", "X-Cattle-Labels", "a=ü", "X-Cattle-Labels: it holds a character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := http.Header{"X-Cattle-Id": {"abc"}}
			headers.Set(tt.header, tt.value)
			_, err := parseRegistration(headers)
			var refused *response.Error
			if !errors.As(err, &refused) || refused.Code != http.StatusBadRequest || !strings.Contains(refused.Message, tt.want) {
				t.Errorf("got %v, want a refusal with %q", err, tt.want)
			}
			if strings.ContainsAny(refused.Message, "\n") {
				t.Errorf("%q is more than one line", refused.Message)
			}
		})
	}
	if _, err := parseRegistration(http.Header{"X-Cattle-Id": {"a", "b"}}); err == nil || !strings.Contains(err.Error(), "sent 2 times") {
		t.Errorf("two ids: %v", err)
	}
}

// FuzzParseRegistration feeds one value into every header. What is accepted must be safe to store, and none of it may be the secret.
func FuzzParseRegistration(f *testing.F) {
	for _, seed := range []string{"abc", "true", "a=b,c=d", "k=v:NoSchedule", "10.0.0.1,::1", "rke.cattle.io/x=y", "\x00", "a=\n",
		strings.Repeat("x", 300)} {
		f.Add(seed, seed)
	}
	names := []string{
		rkev1.HeaderRoleEtcd, rkev1.HeaderNodeName, rkev1.HeaderAddress, rkev1.HeaderDetectedAddress, rkev1.HeaderLabels, rkev1.HeaderTaints,
	}
	f.Fuzz(func(t *testing.T, value, secret string) {
		for _, name := range append(names, rkev1.HeaderID) {
			headers := http.Header{}
			headers.Set("X-Cattle-Id", "id")
			headers.Set("X-Cattle-"+name, value)
			headers.Set("X-Cattle-Machine-Secret", secret)
			got, err := parseRegistration(headers)
			if err != nil {
				if errors.As(err, new(*response.Error)) {
					continue
				}
				t.Fatalf("%s: %q: %v is no refusal", name, value, err)
			}
			encoded, err := got.encode()
			if err != nil {
				t.Fatal(err)
			}
			fields := map[string][]string{}
			if err := json.Unmarshal(encoded, &fields); err != nil {
				t.Fatalf("%s: %q was encoded as %s", name, value, encoded)
			}
			for _, values := range fields {
				if len(values) != 1 || values[0] == "" || strings.TrimSpace(values[0]) != values[0] {
					t.Errorf("%s: %q was kept as %q", name, value, values)
				}
				if trimmed := strings.TrimSpace(secret); len(trimmed) >= minSecretLength && trimmed != strings.TrimSpace(value) &&
					values[0] == trimmed {
					t.Errorf("the secret is in the request")
				}
			}
			for _, prefix := range rkev1.ReservedPrefixes {
				if name == rkev1.HeaderLabels && strings.Contains(","+first(fields[name]), ","+prefix) {
					t.Errorf("%q was accepted", value)
				}
			}
		}
	})
}
