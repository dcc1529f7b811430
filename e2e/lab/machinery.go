package lab

import (
	"context"

	"github.com/drover-dev/drover/e2e/hosts"
)

// Stage is one step of putting up the machinery. Run returns what to show when it is done.
type Stage struct {
	Title string
	Run   func(ctx context.Context) (string, error)
}

// HubStage is the title of the stage that starts the hub.
const HubStage = "Hub"

// Stages are the steps that put up everything a cluster of a distribution is made with, in their order.
func (l *Lab) Stages(d Distribution) []Stage {
	return []Stage{
		{"Debian base image", func(ctx context.Context) (string, error) { return hosts.EnsureBase(ctx, l.cache, l.report) }},
		{"Test distribution " + d.Version, func(ctx context.Context) (string, error) { return l.Distro(ctx, d.Version) }},
		{"Network of the lab", func(ctx context.Context) (string, error) {
			if err := l.Up(ctx); err != nil {
				return "", err
			}
			return "hub at " + l.HubIP().String(), nil
		}},
		{"Registry with the images of installer and cluster-agent", func(ctx context.Context) (string, error) {
			if err := l.StartRegistry(ctx); err != nil {
				return "", err
			}
			if err := l.ReleaseClusterAgent(ctx); err != nil {
				return "", err
			}
			return l.RegistryURL(), l.Release(ctx, d.Version)
		}},
		{HubStage, func(ctx context.Context) (string, error) {
			return l.ServerURL() + " is healthy", l.StartHub(ctx)
		}},
	}
}

// Machinery puts up everything a cluster is made with.
func (l *Lab) Machinery(ctx context.Context) error {
	for _, stage := range l.Stages(K3s) {
		l.report(stage.Title)
		if _, err := stage.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}
