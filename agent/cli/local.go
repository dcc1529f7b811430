package cli

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/source/local"
)

// localName is the folder for what belongs to local plans, and begins the names of their engines.
const localName = "local"

// enginePause is between two starts of an engine that cannot read its state.
const enginePause = 10 * time.Second

// localPlans makes and runs an engine for each plan file.
type localPlans struct {
	options engine.Options // of the hub's engine
	machine host.Host
	manager *service
	log     *slog.Logger
}

// run works until ctx is done. The service manager is told of readiness when the folder has been read for the first time.
func (l localPlans) run(ctx context.Context, cfg config.Config) {
	directory := local.New(local.Options{
		Path: cfg.LocalPlanDirectory, StateDirectory: filepath.Join(cfg.StateDirectory, localName),
		Host: l.manager.host(l.machine, localName), Log: l.log,
	})
	directory.Run(ctx, l.engine)
}

// engine applies one plan until ctx is done.
func (l localPlans) engine(ctx context.Context, plan *local.Plan) {
	options := l.options
	options.Name, options.Source, options.StateDirectory = localName+"/"+plan.Name(), plan, plan.StateDirectory()
	options.Host, options.Log = l.manager.host(l.machine, options.Name), l.log.With("source", options.Name)
	// Who may write a plan file may do anything on the machine, so a signature would prove nothing more.
	options.Verify = nil
	folder := filepath.Join(localName, url.PathEscape(plan.Name()))
	options.WorkDirectory = filepath.Join(options.WorkDirectory, folder)
	if options.AppliedPlanDirectory != "" {
		// Each plan has a history of its own, or two that fail in turns would push out all others.
		options.AppliedPlanDirectory = filepath.Join(options.AppliedPlanDirectory, folder)
	}
	for ctx.Err() == nil {
		err := l.once(ctx, options)
		if ctx.Err() != nil {
			return
		}
		options.Log.Error("The engine of a local plan has ended and is started again", "error", err, "retryIn", enginePause)
		select {
		case <-ctx.Done():
		case <-time.After(enginePause):
		}
	}
}

// once runs an engine to its end.
func (l localPlans) once(ctx context.Context, options engine.Options) error {
	agent := engine.New(options)
	l.manager.add(agent)
	defer l.manager.remove(agent, options.Name)
	return agent.Run(ctx)
}
