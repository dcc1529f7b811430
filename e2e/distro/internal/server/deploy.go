package server

import (
	"context"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/manifests"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// baseYAML has PROGRAM in the place of the name of the flavour's program.
//
//go:embed base.yaml
var baseYAML string

var base = []byte(strings.ReplaceAll(baseYAML, "PROGRAM", flavour.Current.Program))

// startDeploying applies the manifests of this server now and whenever they change, and looks after the nodes.
func (s *server) startDeploying(ctx context.Context) error {
	if !s.hasAPI() {
		return nil
	}
	conf, err := kubeconfig.Load(s.data.Cred("supervisor.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(conf)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(conf)
	if err != nil {
		return err
	}
	a := manifests.NewApplier(client, disco, "deploy@"+s.NodeName)
	if err := os.MkdirAll(s.data.Server("manifests"), 0o700); err != nil {
		return err
	}
	go s.deploy(ctx, a)
	go s.watchNodes(ctx)
	return nil
}

// deploy applies the fixture's own objects and then, again and again, what has changed in the manifests folder.
func (s *server) deploy(ctx context.Context, a *manifests.Applier) {
	applied := map[string]string{}
	said := map[string]string{}
	try := func(name string, raw []byte) {
		hash := supervisor.Hash(raw)
		if applied[name] == hash {
			return
		}
		err := a.Apply(ctx, name, raw)
		switch {
		case err == nil:
			applied[name] = hash
			delete(said, name)
			s.log.Info("Applied a manifest", "file", name)
		case ctx.Err() == nil && said[name] != err.Error():
			said[name] = err.Error()
			s.log.Warn("Cannot apply a manifest, trying again", "file", name, "error", err)
		}
	}
	for ctx.Err() == nil {
		try(flavour.Name("*-base.yaml"), base)
		files, err := listManifests(s.data.Server("manifests"))
		if err != nil {
			s.log.Warn("Cannot read the manifests", "error", err)
		}
		for _, file := range files {
			if raw, err := os.ReadFile(file); err == nil {
				try(file, raw)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
}

// listManifests finds the YAML and JSON files below a folder, without those that have a neighbour named .skip.
func listManifests(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		if _, err := os.Stat(path + ".skip"); err == nil {
			return nil
		}
		out = append(out, path)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing manifests: %w", err)
	}
	return out, nil
}
