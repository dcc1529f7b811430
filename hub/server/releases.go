package server

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/feed"
)

// addReleases returns the catalog of releases. Where release data was asked for, the catalog has it before anything is rendered, since
// a plan that is rendered with other data is another plan.
func addReleases(ctx context.Context, mgr ctrl.Manager, opts Options) (*release.Catalog, error) {
	catalog := &release.Catalog{}
	if opts.ReleaseData == "" {
		return catalog, nil
	}
	data := &feed.Feed{Location: opts.ReleaseData, CacheFile: opts.ReleaseDataCache, Catalog: catalog, Logger: opts.Logger}
	if err := data.Load(ctx); err != nil {
		return nil, err
	}
	if err := mgr.Add(data); err != nil {
		return nil, fmt.Errorf("adding the feed of release data: %w", err)
	}
	return catalog, nil
}
