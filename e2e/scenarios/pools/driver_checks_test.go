//go:build e2e && full

package pools

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

// waitDriver waits until the kinds of a NodeDriver are there.
func waitDriver(t *testing.T, driver *managementv3.NodeDriver) {
	t.Helper()
	waitFor(t, "the driver is ready", 3*time.Minute, func(ctx context.Context) (bool, string) {
		err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(driver), driver)
		return err == nil && meta.IsStatusConditionTrue(driver.Status.Conditions, "Ready"), fmt.Sprintf("%+v %v", driver.Status, err)
	})
}

// checkInstances fails the test if the cloud has other instances than those of machines: a creation that was interrupted leaves none.
func checkInstances(t *testing.T, cloud *nodedriver.Cloud, want int) {
	t.Helper()
	if all := cloud.Instances(); len(all) != want {
		t.Errorf("the cloud has %d instances, not %d: %v", len(all), want, all)
	}
}

// logIn runs a command on a machine of the workers with hub machine ssh, over the network and through the agent's tunnel, and fetches its
// key.
func logIn(t *testing.T, key client.ObjectKey) {
	t.Helper()
	machines, err := machinesOf(t.Context(), key, inPool("workers"))
	suite.Must(t, err)
	machine := machines[0]
	if log := shared.RunHub(t, "machine", "logs", key.Namespace+"/"+machine.Name); !strings.Contains(log, "with the token [redacted]") {
		t.Errorf("hub machine logs prints %q", log)
	}
	host, err := shared.Host(machine.Spec.InfrastructureRef.Name)
	suite.Must(t, err)
	home := t.TempDir()
	ssh := func(ctx context.Context) (string, error) {
		cmd := shared.Command(ctx, filepath.Join(shared.Repo, "bin", "hub"), "machine", "ssh", key.Namespace+"/"+machine.Name,
			"--kubeconfig", shared.HubKubeconfig(), "--", "cat", "/etc/hostname", "/etc/machine-id")
		cmd.Env = append(cmd.Env, "HOME="+home)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("hub machine ssh: %w: %s", err, errs.String())
		}
		return out.String(), nil
	}
	id, err := os.ReadFile(host.Path("/etc/machine-id"))
	suite.Must(t, err)
	want := machine.Status.NodeRef.Name + "\n" + string(id)
	out, err := ssh(t.Context())
	suite.Must(t, err)
	if out != want {
		t.Errorf("over the network it prints %q, not %q", out, want)
	}

	suite.Must(t, host.CloseIncoming(t.Context()))
	if out, err := ssh(t.Context()); err == nil || !strings.Contains(err.Error(), "tunnel.allow") {
		t.Errorf("behind a firewall, without a tunnel: %q, %v", out, err)
	}
	result, err := host.Script(t.Context(), `set -e
printf 'tunnel: {enabled: true, allow: ["127.0.0.1:22"]}\n' >>/etc/rancher/agent/config.yaml
systemctl restart rancher-system-agent`, nil)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("configuring the agent: %v: %+v", err, result)
	}
	waitFor(t, "the machine is reached through its tunnel", time.Minute, func(ctx context.Context) (bool, string) {
		out, err := ssh(ctx)
		return err == nil && out == want, fmt.Sprintf("%q, %v", out, err)
	})
	suite.Must(t, host.OpenIncoming(t.Context()))
	file := filepath.Join(home, "key")
	shared.RunHub(t, "machine", "ssh-key", key.Namespace+"/"+machine.Name, "--file", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("the key: %+v, %v", info, err)
	}
}

// checkCredential looks for the credential of the cloud where people read.
func checkCredential(t *testing.T, arguments *suite.Arguments) {
	t.Helper()
	log, err := os.ReadFile(shared.LogFile("hub"))
	suite.Must(t, err)
	places := map[string]string{"the hub's log": string(log)}
	for _, kind := range []string{"events", "clusters.provisioning.cattle.io", "machines.cluster.x-k8s.io",
		"labmachines.rke-machine.cattle.io", "labmachinetemplates.rke-machine.cattle.io",
		"labconfigs.rke-machine-config.cattle.io", "configmaps"} {
		places[kind] = shared.RunKubectl(t, shared.HubKubeconfig(), "get", kind, "--all-namespaces", "--output", "yaml")
	}
	for _, command := range arguments.With(cloudToken) {
		t.Errorf("it is in the arguments of a program: %s", command)
	}
	for place, text := range places {
		if text == "" || strings.Contains(text, cloudToken) {
			t.Errorf("%s: %d bytes, which must not have the credential", place, len(text))
		}
	}
}
