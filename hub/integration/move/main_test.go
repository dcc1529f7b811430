// Package move holds the tests of moving clusters from one hub to another with clusterctl. They have a package of their own, since they
// need a second hub, in a process of its own.
package move

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/app"
	"github.com/drover-dev/drover/hub/testenv"
)

// childEnv makes the test binary run nothing but a hub, which says on its standard output how it is reached.
const childEnv = "DROVER_TEST_SECOND_HUB"

var (
	// source is the hub that clusters move from.
	source *testenv.Env
	// clusterctl is upstream's program, built from the version of Cluster API that the hub holds.
	clusterctl string
)

func TestMain(m *testing.M) { os.Exit(start(m)) }

func start(m *testing.M) (code int) {
	child := os.Getenv(childEnv) != ""
	var err error
	if !child {
		dir, err := os.MkdirTemp("", "drover-clusterctl-")
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			err = buildClusterctl(filepath.Join(dir, "clusterctl"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "building clusterctl:", err)
			return 1
		}
	}
	if source, err = testenv.Start(testenv.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "starting the hub:", err)
		return 1
	}
	defer func() {
		if err := source.Stop(code != 0); err != nil {
			fmt.Fprintln(os.Stderr, "the hub ended with an error:", err)
			code = 1
		}
		if code != 0 {
			fmt.Fprintln(os.Stderr, "the hub's log is", source.Log)
		}
	}()
	if child {
		_ = json.NewEncoder(os.Stdout).Encode(target{Kubeconfig: source.Server.Kubeconfig(), ServerURL: source.ServerURL, CACerts: source.CACerts})
		// The parent closes this process's standard input when it ends, however it ends.
		_, _ = os.Stdin.Read(make([]byte, 1))
		return 0
	}
	return m.Run()
}

func buildClusterctl(to string) error {
	build := exec.Command("go", "build", "-o", to, "sigs.k8s.io/cluster-api/cmd/clusterctl")
	build.Dir = filepath.Join("..", "..", "..", "tools", "clusterctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	clusterctl = to
	return build.Run()
}

// target is the hub that clusters move to, as its process tells it.
type target struct {
	Kubeconfig, ServerURL string
	CACerts               []byte
	// Client is made from the kubeconfig, which is then replaced by one for clusterctl.
	client.Client `json:"-"`
}

// startTarget starts a second hub.
func startTarget(t *testing.T) *target {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
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
	config, err := clientcmd.BuildConfigFromFlags("", hub.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := app.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	if hub.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	hub.Kubeconfig = versioned(t, config)
	return hub
}
