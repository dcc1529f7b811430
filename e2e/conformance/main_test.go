//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// options come from the environment, since the flags are those of go test.
var options struct {
	// agent is the binary that is judged (AGENT).
	agent string
	// strict makes what only better agents can do a part of the contract (STRICT=1; always where AGENT is not given).
	strict bool
	// patience is for what comes at some time (PATIENCE). The first agent of this kind pauses for a minute after an error.
	patience time.Duration
	// known are the rules that the agent is known to lack (KNOWN names a file); nil where nothing is known of it.
	known map[string]expectation
}

// api is the API server that all rules share.
var api struct {
	config *rest.Config
	client kubernetes.Interface
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := readOptions(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	stop, err := startAPI()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server:", err)
		return 2
	}
	defer stop()
	return m.Run()
}

func readOptions() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("conformance: run it as root, as the agent must be")
	}
	options.agent, options.strict = os.Getenv("AGENT"), os.Getenv("STRICT") == "1"
	if options.agent == "" {
		options.agent, options.strict = "../../bin/system-agent", true
	}
	options.patience = 150 * time.Second
	if text := os.Getenv("PATIENCE"); text != "" {
		var err error
		if options.patience, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("conformance: PATIENCE: %w", err)
		}
	}
	if path := os.Getenv("KNOWN"); path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			options.known, err = parseKnown(string(text))
		}
		if err != nil {
			return fmt.Errorf("conformance: KNOWN: %w", err)
		}
	}
	path, err := filepath.Abs(options.agent)
	if err != nil {
		return err
	}
	options.agent = path
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("conformance: AGENT names no agent: %w", err)
	}
	return nil
}

// startAPI starts the API server and hands every change of a plan Secret to the machine that it is of.
func startAPI() (stop func(), err error) {
	if api.config, stop, err = startServer(); err != nil {
		return nil, err
	}
	api.config.QPS = -1
	if api.client, err = kubernetes.NewForConfig(api.config); err == nil {
		err = follow()
	}
	if err != nil {
		stop()
	}
	return stop, err
}

func follow() error {
	secrets := api.client.CoreV1().Secrets("")
	list, err := secrets.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return secrets.Watch(ctx, o)
	}}
	watcher, err := watchtools.NewRetryWatcherWithContext(context.Background(), list.ResourceVersion, source)
	if err != nil {
		return err
	}
	go func() {
		for event := range watcher.ResultChan() {
			secret, ok := event.Object.(*corev1.Secret)
			if !ok || secret.Name != secretName {
				continue
			}
			if m, found := machines.Load(secret.Namespace); found {
				m.(*machine).observe(event.Type, secret)
			}
		}
	}()
	return nil
}
