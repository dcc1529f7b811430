package controlplane

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// releaseData has every control plane looked at when what is known of releases changes.
func (r *Reconciler) releaseData() source.Source {
	changes := make(chan event.GenericEvent, 1)
	if r.Releases != nil {
		r.Releases.OnChange(func() {
			select {
			case changes <- event.GenericEvent{Object: &rkev1.RKEControlPlane{}}:
			default: // one that is not looked at yet stands for this one too
			}
		})
	}
	return source.Channel(changes, handler.EnqueueRequestsFromMapFunc(r.allControlPlanes))
}

func (r *Reconciler) allControlPlanes(ctx context.Context, _ client.Object) []ctrl.Request {
	var list rkev1.RKEControlPlaneList
	if err := r.Client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing RKEControlPlanes")
		return nil
	}
	requests := make([]ctrl.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
