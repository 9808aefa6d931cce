// Owner of the compiled headers: nothing links it.
int main() {}
