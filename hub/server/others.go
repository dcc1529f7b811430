package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server/capi"
)

// rancher is the Deployment of Rancher.
var rancher = client.ObjectKey{Namespace: "cattle-system", Name: "rancher"}

// errRancher is returned by checkOthers.
var errRancher = errors.New("this cluster has Rancher (Deployment " + rancher.String() + "), whose objects are of the same kinds; " +
	"install the hub in another cluster, or scale that Deployment to 0 to have the hub take over the clusters (docs/from-rancher.md)")

// checkOthers returns an error where a program is installed that works with the same objects. The definitions of a hub would replace those
// of Rancher, and the API server would drop the fields that these alone have. An administrator who stops Rancher wants that. Each provider
// has kinds and finalizers of Rancher; another Cluster API is the business of the one that runs it.
func checkOthers(ctx context.Context, c client.Reader, opts Options) error {
	deployment := &appsv1.Deployment{}
	err := c.Get(ctx, rancher, deployment)
	switch {
	case err == nil && !isStopped(deployment):
		return errRancher
	case err == nil, apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsForbidden(err): // also with the rights of an earlier hub
	default:
		return fmt.Errorf("looking for Rancher: %w", err)
	}
	if opts.ExternalCAPI || !opts.Providers.Has(provider.ControlPlane) {
		return nil
	}
	err = capi.CheckNotInstalled(ctx, c, opts.Settings.SystemNamespace)
	if errors.Is(err, capi.ErrInstalled) {
		return fmt.Errorf("%w; use it with --capi=external", err)
	}
	return err
}

// isStopped reports whether a Deployment has no Pods and is to have none.
func isStopped(d *appsv1.Deployment) bool {
	return d.Spec.Replicas != nil && *d.Spec.Replicas == 0 && d.Status.Replicas == 0
}

// othersInterval is how often a hub that runs looks for such programs.
const othersInterval = time.Minute

// others ends the hub when such a program is installed while it runs, as by "clusterctl init" of an infrastructure provider. Both would
// work against each other, and the hub would not start any more after the next restart, however much later that is.
type others struct {
	reader client.Reader
	opts   Options
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a replica that does not lead would be the next one to do so.
func (o *others) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (o *others) Start(ctx context.Context) error {
	ticker := time.NewTicker(othersInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// What cannot be read now is read a minute later.
		if err := checkOthers(ctx, o.reader, o.opts); errors.Is(err, errRancher) || errors.Is(err, capi.ErrInstalled) {
			return err
		}
	}
}
