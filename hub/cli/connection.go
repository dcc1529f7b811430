package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/server/embedded"
)

// connection is how a command reaches the Kubernetes API that the hub uses.
type connection struct {
	dataDir    string
	kubeconfig string
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.dataDir, "data-dir", defaultDataDir(), "data directory of the hub")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "",
		"kubeconfig of the cluster that the hub uses (default: <data-dir>/"+embedded.AdminKubeconfig+")")
}

// path is the file with the kubeconfig.
func (c *connection) path() string {
	if c.kubeconfig != "" {
		return c.kubeconfig
	}
	return filepath.Join(c.dataDir, embedded.AdminKubeconfig)
}

// restConfig reads the kubeconfig.
func (c *connection) restConfig() (*rest.Config, error) {
	path := c.path()
	if c.kubeconfig == "" {
		if err := c.checkKubeconfig(defaultDataDir(), rootDataDir); err != nil {
			return nil, err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	// The API server limits requests. With the limit of the client's own, five a second, "hub status" would take half a minute with the
	// timeline of a thousand machines, which is in 126 ConfigMaps.
	config.QPS = -1
	// Warnings of the API server are part of an answer, where a command has a place for them.
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// client reads and writes past all caches.
func (c *connection) client() (client.WithWatch, error) {
	config, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := server.NewScheme()
	if err != nil {
		return nil, err
	}
	out, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the hub's API at %s: %w", config.Host, err)
	}
	return out, nil
}

// checkKubeconfig returns an error unless the kubeconfig in the data directory can be read. For a user without a hub in defaultDir, on a
// machine that has the hub of the package or of root in rootDir, it is about that one, whose directory such a user cannot look into.
func (c *connection) checkKubeconfig(defaultDir, rootDir string) error {
	path := c.path()
	err := readable(path)
	if errors.Is(err, fs.ErrNotExist) && c.dataDir == defaultDir && c.dataDir != rootDir {
		if _, statErr := os.Stat(filepath.Dir(rootDir)); statErr == nil {
			path, err = filepath.Join(rootDir, embedded.AdminKubeconfig), fs.ErrPermission
		}
	}
	return explainKubeconfig(path, err)
}

// readable returns an error unless this process can open a file.
func readable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// explainKubeconfig says what to do about an error of reading the kubeconfig in the data directory.
func explainKubeconfig(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no hub's kubeconfig at %s; name another --data-dir or a --kubeconfig", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("reading the hub's kubeconfig %s: permission denied; run this command as root, or name a --kubeconfig", path)
	case err != nil:
		return fmt.Errorf("reading the hub's kubeconfig: %w", err)
	default:
		return nil
	}
}

// cluster reads the argument of a command about a cluster and returns a client for it.
func (c *connection) cluster(argument string) (client.WithWatch, client.ObjectKey, error) {
	key, err := clusterKey(argument)
	if err != nil {
		return nil, key, err
	}
	out, err := c.client()
	return out, key, err
}

// selection reads the arguments of a command that lists what belongs to one cluster, or to all.
func (c *connection) selection(args []string) (client.ObjectKey, error) {
	if len(args) == 0 {
		return client.ObjectKey{}, nil
	}
	return clusterKey(args[0])
}

// oneCluster checks that a command about a cluster has one argument.
func oneCluster(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New(commandName(cmd) + " needs one argument: <namespace>/<cluster>")
	}
	return nil
}

// commandName is the name of a command as messages have it, without that of the program.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// clusterKey reads the argument of a command about a cluster.
func clusterKey(text string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, fmt.Errorf("%q is not <namespace>/<cluster>", text)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// explain adds to an error of the API what to do: about a missing right, of which the API server's message names verb, resource and
// namespace, an API server that does not run, and one that is not that of a hub.
func explain(err error) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err // the API server forbids it to everybody
	case apierrors.IsForbidden(err):
		return fmt.Errorf("a right is missing: %w; ask an administrator of the hub for it", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; no API server listens there: if it is the one in the hub, start the hub", err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w; this is not the API of a hub, or the hub has not started yet: --kubeconfig names that of the hub's cluster", err)
	default:
		return err
	}
}
