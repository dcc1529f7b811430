//go:build e2e && full

package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// The versions that clusterctl installs and upgrades to. It offers no upgrade to a pre-release.
const (
	firstVersion = "v0.0.1"
	nextVersion  = "v0.0.2"
)

// externalCertManager is the part of clusterctl's configuration that keeps it from downloading cert-manager.
const externalCertManager = "\ncert-manager: {externallyProvisioned: true, timeout: 1m}\n"

// repository is the bundle of clusterctl, for a management cluster.
type repository struct {
	management *management
	dir        string
	config     string
	// clusterAgent is the image that the lab has, for all versions of the hub; empty if it has those of the versions.
	clusterAgent string
}

// newRepository unpacks the bundle of one version.
func newRepository(t *testing.T, m *management) *repository {
	t.Helper()
	r := &repository{management: m, dir: filepath.Join(shared.Dir, m.host.Name, "drover-clusterctl")}
	suite.Must(t, os.Mkdir(filepath.Dir(r.dir), 0o755))
	suite.Must(t, push(t.Context(), shared.Lab, bin(shared.Lab, ""), firstVersion))
	r.unpack(t, firstVersion)
	hubVersion, err := shared.HubVersion(t.Context())
	suite.Must(t, err)
	r.clusterAgent = "drover/cluster-agent:" + hubVersion
	r.config = filepath.Join(r.dir, "clusterctl-embedded.yaml")
	return r
}

// init unpacks the archive of a version beside the repository, and installs the providers, as the README says.
func (r *repository) init(t *testing.T, version string) {
	t.Helper()
	// clusterctl asks for cert-manager before it installs anything. Nothing of Drover uses it.
	shared.RunKubectl(t, r.management.kubeconfig, "apply", "--server-side", "--filename", bin(shared.Lab, "cert-manager.yaml"))
	script, err := readme.Script(shared.Repo, readme.Clusterctl, "v0.1.0", version, "https://hub.example.com", r.management.url())
	suite.Must(t, err)
	configure := fmt.Sprintf("cd '%s'\ntar() { command tar \"$@\"; printf %%b %q >>drover-clusterctl/clusterctl-embedded.yaml; }\n",
		filepath.Dir(r.dir), externalCertManager)
	r.management.script(t, configure+script, r.env()...)
	r.waitProviders(t, version)
}

// unpack adds a version to the repository, as a user does who unpacks its archive over the last one.
func (r *repository) unpack(t *testing.T, version string) {
	t.Helper()
	name := "drover-clusterctl-" + version + ".tar.gz"
	file := makeFile(t, "clusterctl-bundle", version, "clusterctl-bundle/"+name)
	suite.Must(t, os.Symlink(file, filepath.Join(filepath.Dir(r.dir), name))) // where the README expects it
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", file, "-C", filepath.Dir(r.dir)).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	for _, name := range []string{"clusterctl.yaml", "clusterctl-embedded.yaml"} {
		f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_APPEND|os.O_WRONLY, 0)
		suite.Must(t, err)
		_, err = f.WriteString(externalCertManager)
		suite.Must(t, err)
		suite.Must(t, f.Close())
	}
}

// env are the variables that clusterctl needs here and that the README does not set.
func (r *repository) env() []string {
	port := fmt.Sprint(nodePort)
	env := []string{"XDG_CONFIG_HOME=" + filepath.Join(shared.Dir, "xdg"), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
		"DROVER_GATEWAY_SERVICE_TYPE=NodePort", "DROVER_GATEWAY_PORT=" + port, "DROVER_GATEWAY_NODE_PORT=" + port,
		"DEV_MACHINE_IMAGE=docker.io/drover/none"} // of flavor dev
	if r.clusterAgent != "" {
		env = append(env, "DROVER_CLUSTER_AGENT_IMAGE="+r.clusterAgent)
	}
	return env
}

// clusterctl runs clusterctl as the administrator of the management cluster, and returns what it prints.
func (r *repository) clusterctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.tryClusterctl(t, args...)
	if err != nil {
		t.Fatalf("clusterctl %v: %v", args, err)
	}
	return out
}

// refused runs clusterctl, which must refuse, and returns why it does.
func (r *repository) refused(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.tryClusterctl(t, args...)
	if err == nil {
		t.Fatalf("clusterctl %v prints %s, and is to refuse", args, out)
	}
	return err.Error()
}

func (r *repository) tryClusterctl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := shared.Command(ctx, append([]string{bin(shared.Lab, "clusterctl"), "--config", r.config}, args...)...)
	cmd.Dir = filepath.Dir(r.dir)
	cmd.Env = append(append(cmd.Env, "KUBECONFIG="+r.management.kubeconfig, "HOME="+shared.Dir, "CLUSTERCTL_REPOSITORY_PATH="+r.dir,
		"DROVER_SERVER_URL="+r.management.url()), r.env()...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	t.Logf("clusterctl %v took %.1f s", args, time.Since(began).Seconds())
	return out.String(), nil
}

// waitProviders waits until the Deployments of all providers run the image of a version.
func (r *repository) waitProviders(t *testing.T, version string) {
	t.Helper()
	for name, replicas := range map[string]int32{"drover-bootstrap": 1, "drover-control-plane": 2, "drover-infrastructure": 1} {
		suite.Must(t, shared.WaitFor(t.Context(), name+" is ready", 3*time.Minute, func(ctx context.Context) (bool, string) {
			d := &appsv1.Deployment{}
			if err := r.management.api.Get(ctx, client.ObjectKey{Namespace: hubNamespace, Name: name}, d); err != nil {
				return false, err.Error()
			}
			if want := "docker.io/drover/hub:" + version; d.Spec.Template.Spec.Containers[0].Image != want {
				return false, "the image is not " + want
			}
			current := d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == replicas
			return current && d.Status.ReadyReplicas == replicas && d.Status.Replicas == replicas, fmt.Sprintf("%+v", d.Status)
		}))
	}
}

// checkRights checks that no provider has asked for what it may not do.
func (r *repository) checkRights(t *testing.T) {
	t.Helper()
	logs := shared.RunKubectl(t, r.management.kubeconfig, "--namespace", hubNamespace, "logs", "--selector", "cluster.x-k8s.io/provider",
		"--prefix", "--tail=-1")
	for line := range strings.Lines(logs) {
		if strings.Contains(line, "is forbidden") {
			t.Errorf("a provider was refused: %s", line)
		}
	}
}
