package server

import (
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/jobs"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
)

// newDrivers returns what runs node drivers: Jobs where there is an image for them, otherwise processes of the hub.
func newDrivers(config *rest.Config, opts Options) (nodedriver.Drivers, error) {
	if opts.NodeDriverImage != "" {
		return jobs.New(config, jobs.Options{
			Namespace: opts.Settings.SystemNamespace, Image: opts.NodeDriverImage, PullSecrets: opts.NodeDriverPullSecrets,
			ProgramDir: opts.NodeDriverDir, Scheduling: opts.NodeDriverScheduling, Proxy: nodedriver.Proxy(),
		})
	}
	runner, err := nodedriver.NewRunner(opts.NodeDriverDir)
	return &nodedriver.Local{Programs: programs.NewStore(opts.NodeDriverDir), Runner: runner}, err
}
