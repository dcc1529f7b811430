package server

import (
	"context"

	"github.com/drover-dev/drover/e2e/distro/internal/agent"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// local lets the agent in this process take from its server what others ask the supervisor for.
type local struct{ *server }

func (l local) Settings(context.Context) (supervisor.Settings, error) { return l.settings(), nil }

func (l local) Sign(_ context.Context, req supervisor.SignRequest) (supervisor.SignResponse, error) {
	return l.sign(req)
}

func (l local) APIServers(ctx context.Context) ([]string, error) { return l.apiServers(ctx) }

// startAgent makes this server a node too. A server without the Kubernetes API does not wait for that: the first server
// of a cluster may be one, and the API is then on a server that has yet to join.
func (s *server) startAgent(ctx context.Context) error {
	if s.DisableAgent {
		return nil
	}
	if s.hasAPI() {
		return s.becomeNode(ctx)
	}
	go func() {
		if err := s.becomeNode(ctx); err != nil && ctx.Err() == nil {
			s.failed <- err
		}
	}()
	return nil
}

func (s *server) nodeOptions() agent.Options {
	return agent.Options{Config: s.Config, Log: s.log, Set: s.set, Source: local{s}, LocalAPI: s.hasAPI()}
}

func (s *server) becomeNode(ctx context.Context) error {
	var err error
	if flavour.Current.StaticPods {
		err = s.node.Finish(ctx)
	} else {
		err = agent.Start(ctx, s.nodeOptions())
	}
	if err != nil {
		return err
	}
	if s.admin == nil {
		if s.admin, err = kubeconfig.Client(s.adminKubeconfig()); err != nil {
			return err
		}
	}
	err = s.markSelf(ctx)
	s.syncLater() // as long as the Node was not marked, other servers may have deleted its snapshots
	if err != nil || !s.hasAPI() || !s.SecretsEncryption {
		return err
	}
	return s.tellSavedEncryption(ctx)
}
