//go:build e2e

package agent

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

// hubClient opens the API of the hub on the host, whose URL it returns too.
func (n *node) hubClient(kubeconfig string) (client *http.Client, host string) {
	n.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(n.read(kubeconfig)))
	must(n.t, err)
	config.Dial, config.Proxy = n.Dial, func(*http.Request) (*url.URL, error) { return nil, nil }
	client, err = rest.HTTPClientFor(config)
	must(n.t, err)
	return client, config.Host
}

// runsDrivers has a hub that was installed with its package read the flags of a node driver, which it runs in a sandbox for that.
func (n *node) runsDrivers(kubeconfig string) {
	n.t.Helper()
	program, err := nodedriver.Build(n.t.TempDir(), "")
	must(n.t, err)
	raw, err := os.ReadFile(program)
	must(n.t, err)
	const programs = "/var/lib/drover/hub/node-drivers"
	n.do("install", "-d", "-o", "drover", programs)
	n.write(filepath.Join(programs, filepath.Base(program)), string(raw), 0o755)

	client, host := n.hubClient(kubeconfig)
	const path = "/apis/management.cattle.io/v3/nodedrivers"
	const driver = `{"apiVersion": "management.cattle.io/v3", "kind": "NodeDriver", "metadata": {"name": "lab"},
		"spec": {"active": true, "builtin": true}}`
	response, err := client.Post(host+path, "application/json", strings.NewReader(driver))
	must(n.t, err)
	must(n.t, response.Body.Close())
	if response.StatusCode != http.StatusCreated {
		n.t.Fatalf("creating the NodeDriver is answered with %s", response.Status)
	}
	last := ""
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Log("the NodeDriver says: " + last)
		}
	})
	until(n.t, "a NodeDriver that is ready", func() bool {
		response, err := client.Get(host + path + "/lab")
		if err != nil {
			last = err.Error()
			return false
		}
		defer response.Body.Close()
		var found struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
			last = err.Error()
			return false
		}
		for _, c := range found.Status.Conditions {
			if c.Type == "Ready" {
				last = c.Reason + ": " + c.Message
				return c.Status == metav1.ConditionTrue
			}
		}
		return false
	})
}
