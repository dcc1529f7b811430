package clusters

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubprovider "github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/testenv"
)

// secondHubEnv: with it, the test binary runs only this provider of a second hub. The control plane provider brings the API server and
// prints how to connect to it, which the others read.
const secondHubEnv = "DROVER_TEST_SECOND_HUB"

// moveFromEnv is the kubeconfig of the hub whose identity the second one gets.
const moveFromEnv = "DROVER_TEST_MOVE_FROM"

func runSecondHub() (code int) {
	hub, err := testenv.Start(testenv.Options{
		Providers: hubprovider.Set{hubprovider.ControlPlane},
		BeforeHub: func(kubeconfig string) error {
			return copyIdentity(os.Getenv(moveFromEnv), kubeconfig, os.Stderr)
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the second hub:", err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(target{Kubeconfig: hub.Server.Kubeconfig(), ServerURL: hub.ServerURL, CACerts: hub.CACerts})
	// The parent closes this process's standard input when it ends, however it ends.
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := hub.Stop(false); err != nil {
		fmt.Fprintln(os.Stderr, "the second hub ended with an error:", err, "its log is", hub.Log)
		return 1
	}
	return 0
}

// copyIdentity copies the identity of a hub to another management cluster.
func copyIdentity(from, to string, out io.Writer) error {
	var errs bytes.Buffer
	if code := cli.Main([]string{"copy-identity", "--kubeconfig", from, "--to-kubeconfig", to}, out, &errs); code != 0 {
		return fmt.Errorf("hub copy-identity ended with %d: %s", code, errs.String())
	}
	return nil
}

// buildClusterctl builds clusterctl from the version of Cluster API that the hub uses.
func buildClusterctl(t *testing.T) clusterctl {
	t.Helper()
	program := filepath.Join(t.TempDir(), "clusterctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "sigs.k8s.io/cluster-api/cmd/clusterctl")
	build.Dir = filepath.Join("..", "..", "..", "tools", "clusterctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building clusterctl: %v\n%s", err, out)
	}
	return clusterctl(program)
}

// target is the hub that clusters are moved to, as its process prints it.
type target struct {
	Kubeconfig, ServerURL string
	CACerts               []byte
	// Client is made from the kubeconfig, which is then replaced by one for clusterctl.
	client.Client `json:"-"`
	// health are the addresses of the health checks of the providers with processes of their own.
	health []string
}

// startTarget starts a second hub, with a process for each provider and the identity of the hub with this kubeconfig.
func startTarget(t *testing.T, from string) *target {
	t.Helper()
	child := secondHub(hubprovider.ControlPlane)
	child.Env = append(child.Env, moveFromEnv+"="+from)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the second hub: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		t.Fatal("the second hub did not start")
	}
	hub := &target{}
	if err := json.Unmarshal(lines.Bytes(), hub); err != nil {
		t.Fatal(err)
	}
	for _, p := range []hubprovider.Provider{hubprovider.Bootstrap, hubprovider.Infrastructure} {
		hub.health = append(hub.health, startProvider(t, p, lines.Bytes()))
	}
	config, err := clientcmd.BuildConfigFromFlags("", hub.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := server.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	if hub.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	hub.Kubeconfig = versioned(t, config)
	return hub
}
