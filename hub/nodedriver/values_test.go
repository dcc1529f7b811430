package nodedriver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// TestCredentialBeforeDefault: what a credential says of a field comes before the default that the API server has written into the machine
// configuration, and not before what a user has. A field that the credential has only as an environment variable is the user's.
func TestCredentialBeforeDefault(t *testing.T) {
	fields := []schema.Field{
		{Name: "vcenterPort", Flag: plugin.Flag{Name: "vmwarevsphere-vcenter-port", Default: 443}},
		{Name: "region", Flag: plugin.Flag{Name: "amazonec2-region", EnvVar: "AWS_DEFAULT_REGION", Default: "us-east-1"}},
	}
	type texts = map[string]string
	for name, tc := range map[string]struct {
		spec       map[string]any
		credential texts
		want       map[string]any
	}{
		"defaults of the API server": {
			map[string]any{"vcenterPort": "443", "region": "us-east-1"}, texts{"vcenterPort": "8443", "defaultRegion": "eu-west-1"},
			map[string]any{"vmwarevsphere-vcenter-port": 8443, "amazonec2-region": "us-east-1"},
		},
		"the user's": {
			map[string]any{"vcenterPort": "9443"}, texts{"vcenterPort": "8443", "defaultRegion": "eu-west-1"},
			map[string]any{"vmwarevsphere-vcenter-port": 9443, "amazonec2-region": "eu-west-1"},
		},
		"no credential": {
			map[string]any{"vcenterPort": "443"}, nil,
			map[string]any{"vmwarevsphere-vcenter-port": 443, "amazonec2-region": "us-east-1"},
		},
	} {
		got, err := values(fields, tc.spec, tc.credential)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestSecretFields: the credentials of google and harvester are no text for users, neither those of a machine nor what a driver has kept.
func TestSecretFields(t *testing.T) {
	m := &Machine{
		Spec: map[string]any{"authEncodedJson": "planted-account", "kubeconfigContent": "planted-kubeconfig"},
		State: &State{Name: "a", Files: map[string][]byte{
			configFile: []byte(`{"Driver":{"Auth":"planted-key","KubeConfigContent":"planted-access"}}`),
		}},
	}
	if got := m.Redact("planted-account planted-kubeconfig planted-key planted-access"); strings.Contains(got, "planted") {
		t.Errorf("got %s", got)
	}
}
