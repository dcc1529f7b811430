// Command toolbox is the content of the image that scenarios run in clusters: a server that logs, and as much of tar, test, cat and
// sha256sum as "kubectl cp" and a look into a container need. There is no shell. Like busybox, it is called by the name of its link.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// tools are the programs by their names.
var tools = map[string]func(ctx context.Context, args []string, in io.Reader, out io.Writer) error{
	"serve":     serve,
	"terminal":  terminal,
	"tar":       tarTool,
	"test":      testTool,
	"cat":       eachFile(copyFile),
	"sha256sum": eachFile(sumFile),
}

// exitCode ends the program without a word.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() { os.Exit(run()) }

// run is the program; what it returns is the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "toolbox" && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	tool, ok := tools[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "toolbox: there is no %q here\n", name)
		return 127
	}
	err := tool(ctx, args, os.Stdin, os.Stdout)
	if code := exitCode(0); errors.As(err, &code) {
		return int(code)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 2
	}
	return 0
}

// testTool knows "test -d <path>".
func testTool(_ context.Context, args []string, _ io.Reader, _ io.Writer) error {
	if len(args) != 2 || args[0] != "-d" {
		return errors.New("only -d <path> is known")
	}
	if info, err := os.Stat(args[1]); err != nil || !info.IsDir() {
		return exitCode(1)
	}
	return nil
}

func eachFile(do func(path string, out io.Writer) error) func(context.Context, []string, io.Reader, io.Writer) error {
	return func(_ context.Context, args []string, _ io.Reader, out io.Writer) error {
		for _, path := range args {
			if err := do(path, out); err != nil {
				return err
			}
		}
		return nil
	}
}

func copyFile(path string, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(out, f)
	return err
}

func sumFile(path string, out io.Writer) error {
	sum := sha256.New()
	if err := copyFile(path, sum); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%x  %s\n", sum.Sum(nil), path)
	return err
}
