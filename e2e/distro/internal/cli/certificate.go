package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/certificates"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

func certificate() *cobra.Command {
	c := &cobra.Command{Use: "certificate", Short: "Manage the certificates of this node"}
	c.AddCommand(certificateCheck(), certificateRotate(), certificateRotateCA())
	return c
}

// withServices adds the flags of commands on some or all services.
func withServices(c *cobra.Command) (n *node, services *[]string) {
	n = &node{}
	n.add(c)
	return n, c.Flags().StringSliceP("service", "s", nil, "One of: "+strings.Join(certificates.Names(), ", ")+" (default: all)")
}

func certificateCheck() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "Show certificates and their ends", Args: cobra.NoArgs}
	n, services := withServices(c)
	format := c.Flags().StringP("output", "o", "text", "text, table, json or yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		now := time.Now()
		list, err := certificates.Check(n.data(), *services, now)
		if err != nil {
			return err
		}
		return printCertificates(c.Context(), os.Stdout, list, *format, now)
	}
	return c
}

func certificateRotate() *cobra.Command {
	c := &cobra.Command{Use: "rotate", Short: "Move certificates away to get new ones", Args: cobra.NoArgs}
	n, services := withServices(c)
	c.RunE = func(*cobra.Command, []string) error {
		if flavour.Current.StaticPods {
			if err := os.WriteFile(n.data().ForceRestart(), nil, 0o600); err != nil {
				return err
			}
		}
		backup, err := certificates.Rotate(n.data(), *services, time.Now())
		if err == nil {
			logger().Info("Successfully backed up certificates to " + backup +
				flavour.Name(", please restart * server or agent to rotate certificates"))
		}
		return err
	}
	return c
}

func printCertificates(ctx context.Context, to io.Writer, list []certificates.Certificate, format string, now time.Time) error {
	switch format {
	case "text":
		for _, c := range list {
			logCertificate(ctx, logger(), c)
		}
		return nil
	case "table":
		w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
		fmt.Fprint(w, "\nFILENAME\tSUBJECT\tUSAGES\tEXPIRES\tRESIDUAL TIME\tSTATUS\n")
		fmt.Fprint(w, "--------\t-------\t------\t-------\t-------------\t------\n")
		for _, c := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Filename, c.Subject, strings.Join(c.Usages, ","),
				c.ExpiryTime.Format("Jan 02, 2006 15:04 MST"), strings.TrimSpace(humanize.RelTime(now, now.Add(c.ResidualTime), "", "")), c.Status)
		}
		return w.Flush()
	case "json":
		return json.NewEncoder(to).Encode(map[string]any{"Certificates": list})
	case "yaml":
		var out []map[string]any // in YAML, k3s has its names in small letters
		for _, c := range list {
			out = append(out, map[string]any{"filename": c.Filename, "subject": c.Subject, "issuer": c.Issuer, "usages": c.Usages,
				"expirytime": c.ExpiryTime, "residualtime": c.ResidualTime.String(), "status": c.Status})
		}
		raw, err := yaml.Marshal(map[string]any{"certificates": out})
		if err == nil {
			_, err = to.Write(raw)
		}
		return err
	}
	return fmt.Errorf("invalid output format %s", format)
}

func logCertificate(ctx context.Context, log *slog.Logger, c certificates.Certificate) {
	level, says := slog.LevelInfo, "is ok, expires at"
	switch c.Status {
	case certificates.NotYetValid:
		level, says = slog.LevelError, "is not valid before"
	case certificates.Expired:
		level, says = slog.LevelError, "expired at"
	case certificates.Warning:
		level, says = slog.LevelWarn, fmt.Sprintf("will expire within %d days at", certificates.RenewDays)
	}
	log.Log(ctx, level, fmt.Sprintf("%s: certificate %s (%s) %s %s", c.Filename, c.Subject, strings.Join(c.Usages, ","), says,
		c.ExpiryTime.Format(time.RFC3339)))
}
