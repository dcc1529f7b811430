package component

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	encryptioncontroller "k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// apiserver is upstream's API server, with the supervisor's paths in front of its handlers.
func apiserver() *cobra.Command {
	s := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	command := &cobra.Command{
		Use:          "kube-apiserver",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return s.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(*cobra.Command, []string) error {
			gate := s.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
			if err := logsapi.ValidateAndApply(s.Logs, gate); err != nil {
				return err
			}
			return runAPIServer(ctx, s)
		},
	}
	for _, set := range s.Flags().FlagSets {
		command.Flags().AddFlagSet(set)
	}
	return command
}

// reloadInterval is how often the API server looks for new encryption keys; upstream's minute is long for a test.
const reloadInterval = 2 * time.Second

func runAPIServer(ctx context.Context, s *options.ServerRunOptions) error {
	encryptioncontroller.EncryptionConfigFileChangePollDuration = reloadInterval
	completed, err := s.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return err
	}
	if socket := os.Getenv(supervisor.SocketVariable); socket != "" {
		front := config.Aggregator.GenericConfig
		chain := front.BuildHandlerChainFunc
		front.BuildHandlerChainFunc = func(h http.Handler, c *genericapiserver.Config) http.Handler {
			return withSupervisor(chain(h, c), socket)
		}
	}
	c, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(c)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// withSupervisor sends the supervisor's paths to the socket and all others to the API server.
func withSupervisor(next http.Handler, socket string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "supervisor"
			r.Out.Header.Set(supervisor.RemoteAddress, r.In.RemoteAddr)
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; p == "/cacerts" || p == "/ping" || strings.HasPrefix(p, "/db/") || strings.HasPrefix(p, supervisor.Paths) {
			proxy.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
