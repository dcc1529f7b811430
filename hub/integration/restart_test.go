package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/hub/server/embedded"
)

// childEnv is the data directory; with it, the test binary runs an embedded API server only.
const childEnv = "DROVER_TEST_EMBEDDED_CHILD"

const childReady = "ready"

func runChild(dataDir string) int {
	embedded.RouteKubernetesLogs(slog.New(slog.DiscardHandler))
	server, err := embedded.Start(context.Background(), embedded.Options{DataDir: dataDir, Port: 0})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(childReady)
	<-server.Done()
	return 0
}

// startChild starts a server in another process, and returns that once the server is ready.
func startChild(t *testing.T, dataDir string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dataDir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == childReady {
			return child
		}
	}
	t.Fatal("the server did not become ready")
	return nil
}

func clientFrom(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

// startServer starts an API server, which is stopped at the end of the test. Tests that start some run alone, before those that share a
// hub: beside eight of those, on two processors, a start took two minutes.
func startServer(t *testing.T, dataDir string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{DataDir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	return server
}

// TestRestartAfterKill: after a kill, the data is there, and nothing that the killed process left behind delays the next start.
func TestRestartAfterKill(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	child := startChild(t, dataDir)
	before := clientFrom(t, filepath.Join(dataDir, embedded.AdminKubeconfig))
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	if _, err := before.CoreV1().ConfigMaps("default").Create(t.Context(), written, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	server := startServer(t, dataDir)
	read, err := clientFrom(t, server.Kubeconfig()).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if read.Data["a"] != "b" {
		t.Errorf("the ConfigMap holds %v", read.Data)
	}
}

// TestRestartKeepsIdentities: tokens stay valid over a restart, and everything else does even if a certificate was lost.
func TestRestartKeepsIdentities(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	server := startServer(t, dataDir)
	for path, want := range map[string]os.FileMode{
		"etcd": 0o700, "tls": 0o700, "tls/admin.key": 0o600, "tls/service-account.key": 0o600, embedded.AdminKubeconfig: 0o600, ".": 0o700,
	} {
		info, err := os.Stat(filepath.Join(dataDir, path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
	}
	admin := kubernetes.NewForConfigOrDie(server.RestConfig())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	var token string
	eventually(t, "a token", func() error {
		_, _ = admin.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
		found, err := admin.CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token = string(found.Data[corev1.ServiceAccountTokenKey]); token == "" {
			return fmt.Errorf("the Secret has no token")
		}
		return nil
	})
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dataDir, "tls", "admin.crt"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dataDir, "tls", "server.key")); err != nil {
		t.Fatal(err)
	}

	server = startServer(t, dataDir)
	machine := rest.AnonymousClientConfig(server.RestConfig())
	machine.BearerToken = token
	eventually(t, "the old token to be accepted", func() error {
		_, err := kubernetes.NewForConfigOrDie(machine).Discovery().ServerVersion()
		return err
	})
	if _, err := clientFrom(t, server.Kubeconfig()).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("with the new admin.kubeconfig: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	_, err := embedded.Start(t.Context(), embedded.Options{DataDir: env.Server.DataDir()})
	want := fmt.Sprintf("data directory %s is in use by another hub (process %d)", env.Server.DataDir(), os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("a second server on a data directory: got %v, want %s", err, want)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	dataDir := filepath.Join(t.TempDir(), "data")
	opts := embedded.Options{DataDir: dataDir, Port: taken.Addr().(*net.TCPAddr).Port, PortFlag: "--api-port"}
	_, err = embedded.Start(t.Context(), opts)
	if err == nil || !strings.Contains(err.Error(), "address already in use; choose another port with --api-port") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("a taken port: got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dataDir, "etcd")); !os.IsNotExist(err) {
		t.Error("etcd was started before the port was known to be free")
	}
	// What was refused has given everything back.
	opts.Port = 0
	server, err := embedded.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}

// TestStartCanceled: a hub that is stopped while its API server starts returns without an error of the Kubernetes libraries, which would
// exit the process, and the next start finds a valid data directory.
func TestStartCanceled(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	for after := 400 * time.Millisecond; ; after *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		server, err := embedded.Start(ctx, embedded.Options{DataDir: dataDir})
		if err == nil {
			<-server.Done()
			cancel()
			break
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a start that was cancelled after %s: %v", after, err)
		}
	}
	startServer(t, dataDir)
}

func TestStartAndStopDuration(t *testing.T) {
	// A long path makes the socket of etcd go elsewhere.
	dataDir := filepath.Join(t.TempDir(), strings.Repeat("long/", 20), "data")
	begin := time.Now()
	server := startServer(t, dataDir)
	ready := time.Since(begin)
	// An open watch must not hold up the end.
	watch, err := kubernetes.NewForConfigOrDie(server.RestConfig()).CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	begin = time.Now()
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	stopped := time.Since(begin)
	t.Logf("ready after %s, stopped after %s", ready, stopped)
	// The machine may be busy; alone it takes 2 s and 1 s. A watch that held it up would do so for a minute.
	if ready > 90*time.Second || stopped > 40*time.Second {
		t.Errorf("ready after %s, stopped after %s", ready, stopped)
	}
	if err := server.Stop(); err != nil {
		t.Errorf("stopping once more: %v", err)
	}
}
