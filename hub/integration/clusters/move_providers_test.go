package clusters

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubprovider "github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// healthEnv is the address of the health checks of a provider of the second hub.
const healthEnv = "DROVER_TEST_HEALTH"

// secondHub is the process of a provider of a second hub. Its standard input must be closed at the end.
func secondHub(p hubprovider.Provider) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), secondHubEnv+"="+string(p))
	child.Stderr = os.Stderr
	return child
}

// startProvider starts a provider of the second hub, which has told how to connect to it.
func startProvider(t *testing.T, p hubprovider.Provider, connection []byte) (health string) {
	t.Helper()
	health, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	child := secondHub(p)
	child.Env = append(child.Env, healthEnv+"="+health)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(append(bytes.Clone(connection), '\n')); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the provider %s of the second hub: %v", p, err)
		}
	})
	return health
}

// checkHealth checks that kubelet would find a provider alive and ready.
func checkHealth(t *testing.T, health string) {
	t.Helper()
	for _, path := range []string{"/healthz", "/readyz"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s is answered with %s", request.URL, response.Status)
		}
	}
}

// runProvider is the process: it reads how to connect from its standard input, and runs until that is closed.
func runProvider(p hubprovider.Provider) (code int) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	hub := target{}
	if !lines.Scan() {
		fmt.Fprintln(os.Stderr, "nothing tells where the second hub is")
		return 1
	}
	if err := json.Unmarshal(lines.Bytes(), &hub); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		for lines.Scan() {
		}
	}()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	err := testenv.RunProviders(ctx, hubprovider.Set{p}, hub.Kubeconfig, hub.ServerURL, os.Getenv(healthEnv), logger)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "running the provider %s: %v\n", p, err)
		return 1
	}
	return 0
}

// checkLeaders checks that each provider that has a process of its own has elected a leader of its own.
func checkLeaders(ctx context.Context, hub client.Client) error {
	for _, p := range []hubprovider.Provider{hubprovider.Bootstrap, hubprovider.Infrastructure} {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: settings.DefaultSystemNamespace, Name: "drover-hub-" + string(p)}
		if err := hub.Get(ctx, key, lease); err != nil {
			return err
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			return fmt.Errorf("the Lease %s has no holder", key.Name)
		}
	}
	return nil
}
