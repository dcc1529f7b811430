package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
)

func newDownCommand(f *flags) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the lab, or whatever an interrupted run left of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return hosts.ErrNotRoot
			}
			names := []string{f.name}
			if all {
				cache, err := hosts.CacheDir()
				if err != nil {
					return err
				}
				if names, err = hosts.Names(cache); err != nil {
					return err
				}
			}
			for _, name := range names {
				if err := down(cmd, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every lab on this machine")
	return cmd
}

func down(cmd *cobra.Command, name string) error {
	l, err := (&flags{name: name, subnet: -1}).open()
	if err != nil {
		return err
	}
	unlock, err := l.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if !l.Exists() {
		fmt.Printf("There is no lab %q.\n", name)
		return l.Down(cmd.Context())
	}
	s := newSteps(os.Stdout)
	return s.do(fmt.Sprintf("Removing lab %q", name), func() (string, error) { return "nothing of it is left", l.Down(cmd.Context()) })
}

func newStatusCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the lab consists of and whether it runs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			if !l.Exists() {
				fmt.Printf("There is no lab %q.\n", f.name)
				return nil
			}
			fmt.Printf("Lab %q, made %s, in %s\n\n", f.name, l.State().Created.Format(time.DateTime), l.Dir)
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tSTATE\tADDRESS")
			for _, service := range l.Services() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", service.Name, onOff(service.Running, "running", "stopped"), service.URL)
			}
			for _, h := range l.Hosts() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", h.Name, onOff(h.Up(), "on", "off"), h.IP())
			}
			return w.Flush()
		},
	}
}

func onOff(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func newKubectlCommand(f *flags) *cobra.Command {
	cluster := ""
	cmd := &cobra.Command{
		Use:   "kubectl [--cluster [namespace/]name] <arguments of kubectl>",
		Short: "Run kubectl on the hub, or on a cluster that the hub made",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			kubeconfig := l.HubKubeconfig()
			if cluster != "" {
				hub, err := l.HubClient()
				if err != nil {
					return err
				}
				if kubeconfig, err = l.WriteClusterKubeconfig(cmd.Context(), hub, clusterKey(cluster)); err != nil {
					return err
				}
			} else if _, err := os.Stat(kubeconfig); err != nil {
				return fmt.Errorf("lab %q has no hub: %w", f.name, err)
			}
			kubectl, err := l.Kubectl(cmd.Context(), kubeconfig, args...)
			if err != nil {
				return err
			}
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = os.Stdin, os.Stdout, os.Stderr
			return kubectl.Run()
		},
	}
	cmd.Flags().SetInterspersed(false) // everything after the first argument is kubectl's
	cmd.Flags().StringVar(&cluster, "cluster", "", "a cluster that the hub made, opened with its kubeconfig Secret")
	return cmd
}

// clusterKey reads "name" or "namespace/name".
func clusterKey(s string) client.ObjectKey {
	if namespace, name, ok := strings.Cut(s, "/"); ok {
		return client.ObjectKey{Namespace: namespace, Name: name}
	}
	return client.ObjectKey{Namespace: demoCluster.Namespace, Name: s}
}

func newShellCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shell <host> [command]",
		Short: "Open a shell on a host, or run a command there",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			h, err := l.Host(args[0])
			if err != nil {
				return err
			}
			return h.Shell(cmd.Context(), args[1:]...)
		},
	}
	cmd.Flags().SetInterspersed(false) // everything after the host is the command's
	return cmd
}

func newLogsCommand(f *flags) *cobra.Command {
	to := ""
	cmd := &cobra.Command{
		Use:   "logs [hub | registry | <host> [unit]]",
		Short: "Show a log, or save all of them with --to",
		Args:  cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			if to != "" {
				return l.Collect(to)
			}
			if len(args) == 0 {
				logs, err := filepath.Glob(filepath.Join(l.LogDir(), "*.log"))
				fmt.Println(strings.Join(logs, "\n"))
				return err
			}
			if h, err := l.Host(args[0]); err == nil {
				return h.Logs(cmd.Context(), os.Stdout, args[1:]...)
			}
			file, err := os.Open(l.LogFile(args[0]))
			if err != nil {
				return fmt.Errorf("there is no log %q: %w", args[0], err)
			}
			defer file.Close()
			_, err = io.Copy(os.Stdout, file)
			return err
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "folder to save all logs and objects in")
	return cmd
}
