package cli

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source/local"
)

// engineRestartDelay is the time between two starts of an engine that cannot read its state.
const engineRestartDelay = 10 * time.Second

// localPlans runs an engine for each plan file.
type localPlans struct {
	options engine.Options // of the hub's engine
	service *service
	log     *slog.Logger
}

// run works until ctx is done. The agent is ready when the directory has been read for the first time.
func (l localPlans) run(ctx context.Context, cfg config.Config) {
	work := filepath.Join(cfg.WorkDirectory, localName)
	if cfg.PreserveWorkDirectory {
		work = ""
	}
	directory := local.New(local.Options{
		Path: cfg.LocalPlanDirectory, StateDirectory: filepath.Join(cfg.StateDirectory, localName), WorkDirectory: work,
		Host: l.options.Host, Log: l.log, Notify: l.service.notifier(localName),
		StopProgram: func(plan, dir string) error { return engine.StopProgram(l.options.Host, localName+"/"+plan, dir) },
	})
	directory.Run(ctx, l.apply)
}

// apply applies one plan file until ctx is done.
func (l localPlans) apply(ctx context.Context, plan *local.Plan) {
	options := l.options
	options.Name, options.Source, options.StateDirectory = localName+"/"+plan.Name(), plan, plan.StateDirectory()
	options.Notify, options.Log = l.service.notifier(options.Name), l.log.With("source", options.Name)
	// Who can write a plan file is root, so a signature proves nothing.
	options.Verify = nil
	directory := filepath.Join(localName, url.PathEscape(plan.Name()))
	options.WorkDirectory = filepath.Join(options.WorkDirectory, directory)
	if options.AppliedPlanDirectory != "" {
		// Every plan has its own history: two plans that fail in turns would displace all others.
		options.AppliedPlanDirectory = filepath.Join(options.AppliedPlanDirectory, directory)
	}
	for ctx.Err() == nil {
		err := l.runEngine(ctx, options)
		if ctx.Err() != nil {
			return
		}
		options.Log.Error("Engine of a local plan failed; restarting", "error", err, "retryIn", engineRestartDelay)
		_ = retry.Sleep(ctx, engineRestartDelay)
	}
}

func (l localPlans) runEngine(ctx context.Context, options engine.Options) error {
	e := engine.New(options)
	l.service.add(e)
	defer l.service.remove(e, options.Name)
	return e.Run(ctx)
}
