package cli

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestAbsentHub: what is shown of a cluster is of the time at which a hub has last worked.
func TestAbsentHub(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		// ago is how long ago each Lease was renewed.
		ago  map[string]time.Duration
		want string
	}{
		"no Lease, as with an API server in the process": {},
		"it works":                 {ago: map[string]time.Duration{"drover-hub": 3 * time.Second}},
		"the clock here is behind": {ago: map[string]time.Duration{"drover-hub": -time.Hour}},
		"all replicas are down": {ago: map[string]time.Duration{"drover-hub": 3 * time.Hour},
			want: "Lease system/drover-hub was last renewed at 2026-11-29T09:00:00Z, 3h ago"},
		"one for each provider": {ago: map[string]time.Duration{"drover-hub-control-plane": time.Second}},
		"that of the control plane": {ago: map[string]time.Duration{"drover-hub-control-plane": 2 * time.Minute, "drover-hub-bootstrap": 0},
			want: "Lease system/drover-hub-control-plane"},
		"it was one for all before":    {ago: map[string]time.Duration{"drover-hub": 99 * time.Hour, "drover-hub-control-plane": time.Second}},
		"it was one for each provider": {ago: map[string]time.Duration{"drover-hub": time.Second, "drover-hub-control-plane": 99 * time.Hour}},
	} {
		objects := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, coordinationv1.AddToScheme))
		for name, ago := range tc.ago {
			renewed := metav1.NewMicroTime(now.Add(-ago))
			objects.WithObjects(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name},
				Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
		}
		got := absentHub(t.Context(), objects.Build(), "system", now)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
