from bench.driver import main

main()
