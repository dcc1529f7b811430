package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

const machineSecret = "the secret of a machine, long enough"

// get sends a request as a machine does, which comes again where the hub asks for that.
func get(t *testing.T, path string, headers map[string]string) (code int, text string) {
	t.Helper()
	testenv.Until(t, "an answer that is not for later", func() error {
		if code, text = getOnce(t, path, headers); code == http.StatusServiceUnavailable {
			return errors.New(text)
		}
		return nil
	})
	return code, text
}

func getOnce(t *testing.T, path string, headers map[string]string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, env.ServerURL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := httpClientOf(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(raw))
}

func machineHeaders(token, id, secret string) map[string]string {
	headers := map[string]string{
		"X-Cattle-Id": id, "X-Cattle-Machine-Secret": secret, "X-Cattle-Detected-Address": "192.0.2.5",
		"X-Cattle-Role-Etcd": "true", "X-Cattle-Role-Control-Plane": "true", "X-Cattle-Role-Worker": "true",
	}
	if token != "" {
		headers["Authorization"] = "Bearer " + token
	}
	return headers
}

// workerHeaders are those of a machine that registers as a worker only.
func workerHeaders(token, id string) map[string]string {
	headers := machineHeaders(token, id, machineSecret)
	delete(headers, "X-Cattle-Role-Etcd")
	delete(headers, "X-Cattle-Role-Control-Plane")
	return headers
}

// register registers a machine with all roles and returns the token for its plan.
func register(t *testing.T, token, id string) (planToken string) {
	t.Helper()
	return registerAs(t, machineHeaders(token, id, machineSecret))
}

func registerAs(t *testing.T, headers map[string]string) (planToken string) {
	t.Helper()
	var text string
	testenv.Until(t, "the machine to be registered", func() error {
		var code int
		if code, text = get(t, "/v3/connect/agent", headers); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	var connection struct{ KubeConfig, Namespace, SecretName string }
	if err := json.Unmarshal([]byte(text), &connection); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the machine's token to be accepted", func() error { // the API server has caches, too
		path := "/api/v1/namespaces/" + connection.Namespace + "/secrets/" + connection.SecretName
		if code, text := get(t, path, bearer(config.BearerToken)); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	return config.BearerToken
}

// awaitTunnelLog waits until the hub logs that a tunnel of a key is open.
func awaitTunnelLog(t *testing.T, key string) {
	t.Helper()
	testenv.Until(t, "a tunnel of "+key, func() error {
		log, err := os.ReadFile(env.Log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "Tunnel is open") && strings.Contains(line, "key="+key+" ") {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// TestMachineTunnel: a machine opens a tunnel with the token for its plan until it is deleted; with its ID and secret it reads its own
// configuration and no other.
func TestMachineTunnel(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	token, _ := newToken(t, management, managementv3.MachinesPurpose)
	const id = "identity-machine-one"
	name := rkev1.MachineRequestName(id)

	if code, text := get(t, "/v3/connect/config-yaml", machineHeaders(token, id, machineSecret)); code != http.StatusNotFound {
		t.Errorf("the configuration of a machine that is not there: %d %s", code, text)
	}
	planToken := register(t, token, id)
	conn := openTunnel(t, "/v3/connect", bearer(planToken))
	awaitTunnelLog(t, management+":"+name)

	checkMachineInfo(t, cluster, token, id)
	env.Delete(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: rkev1.PlanSecretName(name)}})
	if err := awaitClosed(t, conn, time.Minute); strings.Contains(err.Error(), "i/o timeout") {
		t.Errorf("the tunnel of a machine stays open although its ServiceAccount was deleted: %v", err)
	}
	if code, text := openRefused(t, "/v3/connect", bearer(planToken)); code != http.StatusUnauthorized {
		t.Errorf("with a token of a deleted account: %d %s", code, text)
	}
}

// checkMachineInfo checks what a machine may read.
func checkMachineInfo(t *testing.T, cluster *provisioningv1.Cluster, token, id string) {
	t.Helper()
	var text string
	testenv.Until(t, "the configuration in the machine's plan", func() error {
		var code int
		if code, text = get(t, "/v3/connect/config-yaml", machineHeaders(token, id, machineSecret)); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	config := map[string]any{}
	if err := json.Unmarshal([]byte(text), &config); err != nil || config["token"] == nil {
		t.Errorf("the configuration is not what a machine of the control plane has: %v, %d keys", err, len(config))
	}
	for _, tt := range []struct {
		name, path string
		headers    map[string]string
		code       int
		text       string
	}{
		{"without token, by the stored identity", "/v3/connect/config-yaml", machineHeaders("", id, machineSecret), 200, ""},
		{"with another secret", "/v3/connect/config-yaml", machineHeaders(token, id, machineSecret+"x"), 401, "registered already"},
		{"without secret", "/v3/connect/config-yaml", machineHeaders(token, id, ""), 401, "registered already"},
		{"with another secret and no token", "/v3/connect/config-yaml", machineHeaders("", id, machineSecret+"x"), 401,
			"no machine with this id and secret"},
		{"with another token", "/v3/connect/config-yaml", machineHeaders("aaaaaaaaaa.x", id, machineSecret), 401, "unknown"},
		{"the version", "/v3/connect/cluster-info", bearer(token), 200, cluster.Spec.KubernetesVersion},
		{"the version by its name", "/v3/connect/cluster-info",
			map[string]string{"Authorization": "Bearer " + token, "X-Cattle-Field": "kubernetesVersion"}, 200, cluster.Spec.KubernetesVersion},
		{"the version for a known machine", "/v3/connect/cluster-info", machineHeaders("", id, machineSecret), 200,
			cluster.Spec.KubernetesVersion},
		{"another field", "/v3/connect/cluster-info", map[string]string{"Authorization": "Bearer " + token, "X-Cattle-Field": "token"}, 400,
			"X-Cattle-Field"},
		{"the version for nobody", "/v3/connect/cluster-info", bearer("aaaaaaaaaa.x"), 401, "unknown"},
	} {
		if code, text := get(t, tt.path, tt.headers); code != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, code, text, tt.code, tt.text)
		}
	}
}

// TestMaxUsesOfMachines: each machine counts as one use.
func TestMaxUsesOfMachines(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	token, _ := newToken(t, management, managementv3.MachinesPurpose, func(c *managementv3.ClusterRegistrationToken) { c.Spec.MaxUses = 1 })
	register(t, token, "counted-machine-one")
	if code, text := get(t, "/v3/connect/agent",
		machineHeaders(token, "counted-machine-two", machineSecret)); code != http.StatusUnauthorized || !strings.Contains(text, "used up") {
		t.Errorf("a second machine: %d %s", code, text)
	}
	register(t, token, "counted-machine-one")
}
