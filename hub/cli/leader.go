package cli

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server"
)

// silentFor is how long ago a hub that runs may have renewed its Lease at most. It does so every two seconds, and others take the Lease
// after fifteen.
const silentFor = time.Minute

// absentHub says that no replica of the hub leads, since when, and how that is known; empty while one does, and where it cannot be known: a
// hub with an API server in its process elects nobody, and the user may lack the right to read Leases.
func absentHub(ctx context.Context, c client.Reader, systemNamespace string, now time.Time) string {
	var last coordinationv1.Lease
	for _, providers := range []provider.Set{nil, {provider.ControlPlane}} {
		var lease coordinationv1.Lease
		key := client.ObjectKey{Namespace: systemNamespace, Name: server.LeaderElectionID(providers)}
		if c.Get(ctx, key, &lease) == nil && lease.Spec.RenewTime != nil &&
			(last.Spec.RenewTime == nil || last.Spec.RenewTime.Before(lease.Spec.RenewTime)) {
			last = lease
		}
	}
	if last.Spec.RenewTime == nil || now.Sub(last.Spec.RenewTime.Time) < silentFor {
		return ""
	}
	return fmt.Sprintf("no hub works: the Lease %s/%s was last renewed at %s, %s ago by the clock of this machine", last.Namespace, last.Name,
		last.Spec.RenewTime.UTC().Format(time.RFC3339), duration.HumanDuration(now.Sub(last.Spec.RenewTime.Time)))
}
