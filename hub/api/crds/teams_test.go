package crds

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestRolesOfTeams: the ClusterRoles in docs/teams.md name resources that there are.
func TestRolesOfTeams(t *testing.T) {
	page, err := os.ReadFile("../../../docs/teams.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	known := definitions(t, Options{})
	roles := strings.Split(text, "---\n")
	if len(roles) != 2 {
		t.Fatalf("%d roles", len(roles))
	}
	for _, document := range roles {
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				name, _, _ := strings.Cut(resource, "/")
				if rule.APIGroups[0] != "" && name != "*" && known[name+"."+rule.APIGroups[0]] == nil {
					t.Errorf("%s: there are no %s in the group %s", role.Name, name, rule.APIGroups[0])
				}
			}
		}
	}
}

// TestRoleOfAutoscaler: with the Role in docs/autoscaler.md, each version of the cluster autoscaler may scale: up to v1.32 they update the
// scale, later ones patch it.
func TestRoleOfAutoscaler(t *testing.T) {
	page, err := os.ReadFile("../../../docs/autoscaler.md")
	if err != nil {
		t.Fatal(err)
	}
	const first = "apiVersion: rbac.authorization.k8s.io/v1\n"
	_, text, _ := strings.Cut(string(page), "```yaml\n"+first)
	text, _, _ = strings.Cut(text, "```")
	role := &rbacv1.Role{}
	if err := yaml.UnmarshalStrict([]byte(first+text), role); err != nil {
		t.Fatal(err)
	}
	const scale = "machinedeployments/scale"
	for _, verb := range []string{"get", "update", "patch"} {
		if !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, scale) && slices.Contains(rule.Verbs, verb)
		}) {
			t.Errorf("the Role does not allow to %s %s", verb, scale)
		}
	}
}
