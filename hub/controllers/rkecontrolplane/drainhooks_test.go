package rkecontrolplane

import (
	"fmt"
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestUnansweredHooks: a hook with a key that no annotation can have, or that the hub writes, is named.
func TestUnansweredHooks(t *testing.T) {
	for key, want := range map[string]string{
		"example.com/ready": "", "ready": "", "Example.com/ready": "",
		"": "is empty and was left out", "example.com/": "can be no annotation", "a b": "can be no annotation",
		rkev1.DrainDoneAnnotation: "is for the hub",
	} {
		s := scopeWithMachines()
		s.controlPlane.Spec.UpgradeStrategy.WorkerDrainOptions.PostDrainHooks = []rkev1.DrainHook{{Annotation: key}}
		got := fmt.Sprint(s.unansweredHooks())
		if (got == "[]") != (want == "") || !strings.Contains(got, want) ||
			want != "" && !strings.Contains(got, "spec.rkeConfig.upgradeStrategy.workerDrainOptions.postDrainHooks[0].annotation: ") {
			t.Errorf("%q: got %s", key, got)
		}
	}
}
