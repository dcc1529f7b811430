// Package cli holds the commands for administrators: those that ask a running server, and those that change files of one that is stopped.
// Names, flags and what is printed are those of k3s and RKE2.
package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// changeTimeout is how long a server may take to write the cluster's data.
const changeTimeout = 30 * time.Second

// Commands are those that Run knows.
var Commands = map[string]func() *cobra.Command{
	"certificate":     certificate,
	"etcd-snapshot":   etcdSnapshot,
	"secrets-encrypt": secretsEncrypt,
	"token":           token,
}

// Run runs a command and returns its exit code.
func Run(ctx context.Context, name string, args []string) int {
	command := Commands[name]()
	command.SetArgs(args)
	command.SilenceUsage, command.SilenceErrors = true, true
	command.CompletionOptions.DisableDefaultCmd = true
	if err := command.ExecuteContext(ctx); err != nil {
		logger().Error(err.Error())
		return 1
	}
	return 0
}

// logger is where commands say what they did, as on k3s; standard output is for what they were asked for.
func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// node are the flags that find the files of this node.
type node struct{ dataDir string }

func (n *node) add(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVarP(&n.dataDir, "data-dir", "d", config.FindDataDir(config.Server, os.Getenv), "Folder with the node's state")
	flags.StringP("config", "c", config.File, "Configuration file, of which etcd-snapshot takes the bucket")
	flags.Bool("debug", false, "Accepted for compatibility")
}

func (n *node) data() layout.Data { return layout.Data(n.dataDir) }

// remote are the flags that find a running server. k3s calls the same things differently from command to command.
type remote struct {
	node
	url, token string
}

func (r *remote) add(c *cobra.Command, urlFlag, tokenFlag string) {
	r.node.add(c)
	url := fmt.Sprintf("https://127.0.0.1:%d", cmp.Or(flavour.Current.SupervisorPort, 6443))
	if urlFlag == "server" {
		url = cmp.Or(os.Getenv(flavour.Variable("URL")), url)
	}
	c.PersistentFlags().StringVarP(&r.url, urlFlag, "s", url, "Server to ask")
	c.PersistentFlags().StringVarP(&r.token, tokenFlag, "t", "", "Token of the server, that of this node otherwise")
}

// dial connects to the server with the token that was given, or with that of this node.
func (r *remote) dial(ctx context.Context, timeout time.Duration) (*supervisor.Client, error) {
	token := cmp.Or(r.token, os.Getenv(flavour.Variable("TOKEN")))
	if token == "" {
		raw, err := os.ReadFile(r.data().Server("token"))
		if err != nil {
			return nil, err
		}
		token = string(bytes.TrimSpace(raw))
	}
	c, err := supervisor.Dial(ctx, r.url, token, nil)
	if err != nil {
		return nil, err
	}
	return c.WithTimeout(timeout), nil
}
