package render

import (
	"slices"
	"strings"
	"testing"
)

// TestTargetsOfBootstrapSecrets: a cluster does not start without a Secret that it needs first because its annotations name no Secret.
func TestTargetsOfBootstrapSecrets(t *testing.T) {
	for name, tc := range map[string]struct {
		secrets []BootstrapSecret
		want    string
	}{
		"good":         {[]BootstrapSecret{{Namespace: "kube-system", Name: "a.b"}, {Namespace: "vault", Name: "a.b"}}, ""},
		"no namespace": {[]BootstrapSecret{{Namespace: "Kube_System", Name: "a"}}, "annotation provisioning.cattle.io/sync-target-namespace: is"},
		"no name":      {[]BootstrapSecret{{Namespace: "vault", Name: "a/b"}}, "annotation provisioning.cattle.io/sync-target-name: is \"a/b\""},
		"one for both": {[]BootstrapSecret{{Namespace: "vault", Name: "a"}, {Namespace: "vault", Name: "a"}}, "are both to be vault/a"},
	} {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.BootstrapSecrets = tc.secrets
		_, problems := Plan(in)
		if err := problems.Err(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, tc.want)
		}
	}
}

// TestUnreadableManifest: the distribution applies nothing of a manifest with a document that is no YAML, or no object, and reports that
// to nobody.
func TestUnreadableManifest(t *testing.T) {
	const good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct {
		manifest, want string
	}{
		"none":         {"", ""},
		"one":          {good, ""},
		"two":          {"---\n" + good + "---\n" + good, ""},
		"comment":      {"# nothing\n---\n", ""},
		"indentation":  {good + "---\nkind: Namespace\n apiVersion: v1\n", "document 2: "},
		"tab":          {"metadata:\n\tname: a\n", "document 1: "},
		"open bracket": {"metadata: {name: a\n", "document 1: "},
		"no kind":      {good + "---\napiVersion: v1\n", "document 2: it has no apiVersion and kind"},
		"a text":       {"kubectl apply -f x\n", "document 1: it has no apiVersion and kind"},
		"a list":       {"- " + strings.ReplaceAll(strings.TrimSpace(good), "\n", "\n  "), "document 1: it has no apiVersion and kind"},
	} {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.Spec.AdditionalManifest = tc.manifest
		plan, problems := Plan(in)
		if got := fileOf(t, plan, "/var/lib/rancher/k3s/server/manifests/rancher/addons.yaml"); got != tc.manifest || problems.Err() != nil {
			t.Errorf("%s: the plan has %q, %v", name, got, problems)
		}
		found := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Kept && p.Field == "spec.rkeConfig.additionalManifest" && strings.Contains(p.Message, tc.want)
		})
		if found != (tc.want != "") {
			t.Errorf("%s: problems %v", name, problems)
		}
	}
}
