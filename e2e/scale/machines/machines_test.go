package machines

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-dev/drover/hub/plan/bootstrapdata"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/packaging/install"
	"github.com/drover-dev/drover/plans"
)

// TestBootstrapToken reads what the hub writes, also where user data make it so long that it is compressed.
func TestBootstrapToken(t *testing.T) {
	script, err := install.CompactScript(install.Var{Name: install.VarToken, Value: "secret-token"})
	if err != nil {
		t.Fatal(err)
	}
	long, err := json.Marshal(map[string]string{"comment": string(make([]byte, 20<<10))})
	if err != nil {
		t.Fatal(err)
	}
	for name, userdata := range map[string]string{"short": "", "compressed": string(long)} {
		data, err := bootstrapdata.Make(bootstrapdata.CloudConfig, script, userdata)
		if err == nil && name == "compressed" {
			data, err = bootstrapdata.Compress(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := BootstrapToken(data); got != "secret-token" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, data := range []string{"", "#cloud-config\n{}\n", "- a\n", "\x1f\x8bnothing"} {
		if got, err := BootstrapToken([]byte(data)); err == nil {
			t.Errorf("%q has the token %q", data, got)
		}
	}
}

func TestReadPlan(t *testing.T) {
	const config = `{"node-label": ["a=b", "rke.cattle.io/machine=uid"], "kubelet-arg": ["max-pods=1", "provider-id=dev://one"], "server": "x"}`
	encode := func(path, content string) []byte {
		plan := plans.Plan{Files: []plans.File{{Path: path, Content: base64.StdEncoding.EncodeToString([]byte(content))}}}
		for _, image := range []string{"", "registry.example.com/rancher/system-agent-installer-rke2:v1.36.3-rke2r2@sha256:00"} {
			instruction := plans.Instruction{}
			instruction.Image = image
			plan.Instructions = append(plan.Instructions, instruction)
		}
		raw, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	got, _, err := readPlan(encode("/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", config))
	want := nodeConfig{Labels: map[string]string{"a": "b", "rke.cattle.io/machine": "uid"}, ProviderID: "dev://one",
		Version: "v1.36.3+rke2r2"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, raw := range [][]byte{nil, []byte("{"), encode("/etc/other", config), encode("/a/50-rancher.yaml", "x")} {
		if _, _, err := readPlan(raw); err == nil {
			t.Errorf("%q was read", raw)
		}
	}
}

// TestProgress: a stage is reached when the last machine is first seen there, also when nobody waits for it yet.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := NewProgress(), time.Now()
		p.Reach("early", "one")
		time.Sleep(time.Second)
		p.Reach("early", "two")
		go func() {
			time.Sleep(time.Second)
			p.Reach("late", "one")
			p.Reach("late", "one")
		}()
		for _, tt := range []struct {
			stage    string
			machines int
			want     time.Duration
		}{{"late", 1, 2 * time.Second}, {"early", 1, 0}, {"early", 2, time.Second}} {
			if got, err := p.Await(t.Context(), tt.stage, tt.machines, began); got != tt.want || err != nil {
				t.Errorf("%s with %d machines after %s, want %s: %v", tt.stage, tt.machines, got, tt.want, err)
			}
		}
		if !p.Has("late", "one") || p.Has("late", "two") {
			t.Error("the wrong machines are late")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Await(ctx, "late", 2, began); err == nil {
			t.Error("two machines are late")
		}
	})
}

// TestNodes: a Node is made once, as its kubelet registers it, and has the version of the last plan.
func TestNodes(t *testing.T) {
	api := workload.Start()
	defer api.Stop()
	n := &Nodes{API: api}
	n.Set(Machine{Name: "worker", Address: "127.0.0.3"}, nodeConfig{Labels: map[string]string{"a": "b"}, ProviderID: "dev://one"})
	n.Set(Machine{Name: "server", Address: "127.0.0.2", Server: true}, nodeConfig{Labels: map[string]string{}})
	n.Set(Machine{Name: "worker"}, nodeConfig{ProviderID: "another", Version: "v1.36.3+k3s2"})
	worker, server := api.Node("worker"), api.Node("server")
	if worker.Spec.ProviderID != "dev://one" || worker.Labels["a"] != "b" || worker.Status.Conditions[0].Type != corev1.NodeReady ||
		worker.Status.NodeInfo.KubeletVersion != "v1.36.3+k3s2" {
		t.Errorf("the worker is %+v", worker)
	}
	if _, etcd := server.Labels["node-role.kubernetes.io/etcd"]; !etcd || server.Spec.ProviderID != "k3s://server" {
		t.Errorf("the server is %+v", server)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.Heartbeats(ctx)
}

type recorded struct{ request *http.Request }

func (r *recorded) RoundTrip(request *http.Request) (*http.Response, error) {
	r.request = request
	return nil, http.ErrServerClosed
}

// TestHeaders: only the server says what roles it has; a worker is known by its token.
func TestHeaders(t *testing.T) {
	for _, server := range []bool{true, false} {
		next := &recorded{}
		client := &http.Client{Transport: headers{Machine{Name: "one", Token: "token", Address: "127.0.0.2", Server: server}, next}}
		if _, err := client.Get("https://hub.example.com"); err == nil { //nolint:bodyclose // there is no response
			t.Fatal("there is a response")
		}
		h := next.request.Header
		if h.Get("Authorization") != "Bearer token" || (h.Get("X-Cattle-Role-Etcd") == "true") != server ||
			(h.Get("X-Cattle-Address") != "") != server {
			t.Errorf("server %v: %v", server, h)
		}
	}
	one, two := Machine{Name: "one"}.identity(), Machine{Name: "two"}.identity()
	if one == two || one != (Machine{Name: "one", Token: "new"}).identity() || len(one.Secret) < 16 {
		t.Errorf("identities: %+v, %+v", one, two)
	}
}

// TestOwnAddress: each machine has a connection of its own, from an address of its own.
func TestOwnAddress(t *testing.T) {
	var mu sync.Mutex
	addresses := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(conn net.Conn, _ http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err != nil {
			t.Error(err)
		}
		addresses[host] = true
	}
	server.StartTLS()
	defer server.Close()
	authorities := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: server.URL, CertificateAuthorityData: authorities}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}},
		CurrentContext: "hub",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, machine := range []string{"m1", "m2"} {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.Dial = ownAddress(machine)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		defer client.CloseIdleConnections() // client-go forgets a client that nobody has any more
	}
	mu.Lock()
	defer mu.Unlock()
	if len(addresses) != 2 {
		t.Errorf("two machines connect from %v", addresses)
	}
}
