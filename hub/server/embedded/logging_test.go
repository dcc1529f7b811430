package embedded

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

func TestKubernetesLogsDuringStart(t *testing.T) {
	var out bytes.Buffer
	RouteKubernetesLogs(slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(klog.ClearLogger)

	settle := unsettle()
	klog.ErrorS(errors.New("connection refused"), "Unhandled Error")
	klog.Error("cannot reach a webhook")
	if out.Len() > 0 {
		t.Errorf("logged while it starts or stops: %s", out.String())
	}
	settle()
	settle() // once is enough
	klog.InfoS("Caches are synced")
	if out.Len() > 0 {
		t.Errorf("logged below error level: %s", out.String())
	}
	klog.ErrorS(errors.New("disk full"), "Unhandled Error")
	if !strings.Contains(out.String(), "disk full") {
		t.Errorf("an error while it runs must be logged: %q", out.String())
	}

	out.Reset()
	RouteKubernetesLogs(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer unsettle()()
	klog.ErrorS(errors.New("connection refused"), "Unhandled Error")
	if !strings.Contains(out.String(), "connection refused") {
		t.Errorf("debugging shows everything: %q", out.String())
	}
}

// TestFatalIsLogged: klog.Fatal exits the process; its message is logged although its level is below that of errors.
func TestFatalIsLogged(t *testing.T) {
	const child = "DROVER_TEST_FATAL"
	if os.Getenv(child) != "" {
		RouteKubernetesLogs(slog.New(slog.NewTextHandler(os.Stderr, nil)))
		unsettle()
		klog.Fatalf("PostStartHook %q failed: %v", "a-hook", "no answer")
	}
	command := exec.Command(os.Args[0], "-test.run", "^TestFatalIsLogged$")
	command.Env = append(os.Environ(), child+"=1")
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 255 {
		t.Errorf("ended with %v, want exit code 255", err)
	}
	if !strings.Contains(string(out), `PostStartHook \"a-hook\" failed: no answer`) {
		t.Errorf("the reason is not logged: %s", out)
	}
}

// TestEtcdLogsNoContent: debug messages of etcd contain whole Secrets.
func TestEtcdLogsNoContent(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, running := range []bool{false, true} {
		var state atomic.Bool
		state.Store(running)
		etcd := zap.New(&zapCore{handler: logger.Handler(), running: &state})
		etcd.Debug("applyEntryNormal", zap.String("raftReq", "a token"))
		etcd.Info("ready to serve client requests")
	}
	if text := out.String(); strings.Contains(text, "a token") || strings.Count(text, "ready to serve") != 2 {
		t.Errorf("got %s", text)
	}
}
