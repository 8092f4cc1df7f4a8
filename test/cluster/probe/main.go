// Command probe prints what a container was given of GPUs, as one JSON
// document on standard output: device nodes and whether they can be opened,
// environment, mounts, libraries and DRA device metadata.
//
//	probe once   prints and exits
//	probe hold   prints and waits for SIGTERM
//
// It uses the standard library only, and runs without a shared library.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	mode := "hold"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	if len(os.Args) > 2 || mode != "hold" && mode != "once" {
		fmt.Fprintln(os.Stderr, "usage: probe [hold|once]")
		os.Exit(2)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	report, err := look(root("/"), os.Environ())
	if err == nil {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
	if mode == "hold" {
		<-stop
	}
}
