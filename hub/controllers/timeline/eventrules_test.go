package timeline

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/api/crds"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestEventsDocumented: the page about Events has each reason that is not that of a condition.
func TestEventsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/hub-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(rules map[string]eventRule) {
		for condition, rule := range rules {
			for _, reason := range []string{rule.whenTrue, rule.otherwise, rule.prefix} {
				if reason != "" && reason != suppressed && !strings.Contains(string(page), "`"+reason+"`") {
					t.Errorf("docs/hub-commands.md lacks the reason %s of condition %s", reason, condition)
				}
			}
		}
	}
	for _, rules := range eventRules {
		check(rules)
	}
	check(operationRules)
}

// TestConditionsExplained: "kubectl explain" names all conditions of the hub's own kinds that have a rule.
func TestConditionsExplained(t *testing.T) {
	definitions, err := crds.Definitions(crds.Options{SkipCAPI: true})
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]string{}
	for _, crd := range definitions {
		explained[crd.Name] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"].Description
	}
	for name, kind := range map[string]reflect.Type{
		"clusters.provisioning.cattle.io": reflect.TypeFor[*provisioningv1.Cluster](),
		"rkecontrolplanes.rke.cattle.io":  reflect.TypeFor[*rkev1.RKEControlPlane](),
	} {
		for condition := range eventRules[kind] {
			ofRancher := condition == rkev1.SystemUpgradeControllerReadyCondition
			if !ofRancher && !strings.Contains(explained[name], condition) {
				t.Errorf("status.conditions of %s: %q lacks %s", name, explained[name], condition)
			}
		}
	}
}
