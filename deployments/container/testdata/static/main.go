// Command static stands in for nvidia-cdi-hook.
package main

func main() {}
